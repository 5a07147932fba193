// Runs the export `test_main` of a WebAssembly module; the exit status is what it returns.
import { readFileSync } from "node:fs";
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), {});
process.exit(instance.exports.test_main());
