"""The text of Swift packages, with `$name` where a model's own things go."""

from __future__ import annotations

from string import Template

PACKAGE = Template("""\
// swift-tools-version:5.5
import PackageDescription

let package = Package(
    name: "$class_name",
    products: [.library(name: "$class_name", targets: ["$class_name"])],
    targets: [
        .binaryTarget(name: "$module", path: "$module.xcframework"),
        .target(name: "$class_name", dependencies: ["$module"]),
    ]
)
""")
MODULE_MAP = Template("""\
module $module {
    header "$name.h"
    export *
}
""")
CLASS = Template("""\
import $module

/// Why there is no model, or why a run failed.
public struct ${class_name}Error: Error, CustomStringConvertible {
    public let description: String
}

/// The model $name, compiled ahead of time by tfbridge $version.
///
$listed
///
/// Arrays are row-major, in the model's own memory: they live as long as the model. A model may be used by one thread
/// at a time; any number of them may run at once.
public final class $class_name {
    private let model: UnsafeMutablePointer<${name}_model>

    public init($parameters) throws {
        guard let model = ${name}_new($most) else {
            throw ${class_name}Error(description: "$name: no memory is left")
        }
        self.model = model
    }

    deinit {
        ${name}_free(model)
    }

    private func check(_ status: Int32) throws {
        if status != 0 {
            throw ${class_name}Error(description: String(cString: ${name}_error_message(model)))
        }
    }

$runs$sizes$state$constants$arrays}
""")
RUN = Template("""\
    /// Computes the results from the arguments.
    public func $run() throws {
        try check(${call}_run(model))
    }

""")
SIZES = Template("""\
    // The places of sizes.
$places
    private func withSizes<Result>(_ body: (UnsafeMutablePointer<Int64>) -> Result) -> Result {
        return withUnsafeMutablePointer(to: &model.pointee.sizes) { sizes in
            body(UnsafeMutableRawPointer(sizes).assumingMemoryBound(to: Int64.self))
        }
    }

    /// Tells a size of the next runs, by its place.
    public func setSize(_ place: Int, _ value: Int64) {
        withSizes { $$0[place] = value }
    }

""")
STATE = Template("""\
    /// Gives the state its first values. The first run does so by itself.
    public func reset() throws {
        try check(${name}_reset(model))
    }

    /// A copy of the state: to save it, or to go on elsewhere.
    public func state() throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: $bytes)
        try check(bytes.withUnsafeMutableBytes { ${name}_get_state(model, $$0.baseAddress) })
        return bytes
    }

    /// Makes a copy of a state the present one.
    public func setState(_ bytes: [UInt8]) throws {
        guard bytes.count == $bytes else {
            throw ${class_name}Error(description: "a state has $bytes bytes, not \\(bytes.count)")
        }
        try check(bytes.withUnsafeBytes { ${name}_set_state(model, $$0.baseAddress) })
    }

""")
CONSTANTS = Template("""\
    /// Tells where the contents of $file lie, at a multiple of 64, as long as the model lives.
    public func setConstants(_ constants: UnsafeRawPointer) {
        ${name}_set_constants(model, constants)
    }

""")
ARRAY = Template("""\
    /// $documentation
    public var $which: UnsafeMutableBufferPointer<$type> {
        return UnsafeMutableBufferPointer(start: $address, count: $count)
    }

""")
NAMED = Template("""\
    public var $own: UnsafeMutableBufferPointer<$type> { return $which }

""")
