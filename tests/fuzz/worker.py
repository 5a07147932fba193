"""The process that runs cases: `python -m fuzz.worker PART`. One line of JSON in asks for a case, by seed or text; out
come its text, if it was asked for by seed, and what happened."""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

from .part import Difference, Part

TESTS = Path(__file__).parents[1]


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what code prints is no answer
    sys.path.append(str(TESTS / "compiler"))
    part: Part = importlib.import_module(f"fuzz.parts.{sys.argv[1]}").PART
    bytes_ = part.memory_mib << 20
    resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    answer(
        suffix=part.suffix, units=part.units, seconds=part.seconds, quick=part.quick, is_valid=part.is_valid
    )
    for line in sys.stdin:
        request = json.loads(line)
        text = request.get("text")
        if text is None:
            try:
                text = part.make(request["seed"])
            except Exception:
                answer(text=f"seed {request['seed']}\n")
                answer(outcome="broken part", signature="make", message=traceback.format_exc())
                continue
            answer(text=text)
        answer(**_outcome(part, text))


def _outcome(part: Part, text: str) -> dict[str, str]:
    try:
        return {"outcome": part.check(text)}
    except Difference as difference:
        return {"outcome": "difference", "signature": "difference", "message": str(difference)}
    except BaseException as error:
        return {
            "outcome": "internal error",
            "signature": _signature(error),
            "message": traceback.format_exc()[-6000:],
        }


def _signature(error: BaseException) -> str:
    """The exception and the innermost place in the project that it went through: equal for what one defect does."""
    root = str(TESTS.parent)
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename.startswith(root) and ".venv" not in f.filename
    ]
    place = f"{Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else "nowhere"
    return f"{type(error).__name__}-{place}"


if __name__ == "__main__":
    main()
