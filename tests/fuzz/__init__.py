"""Fuzzing: `make fuzz`, or `python -m fuzz --seconds 60 --part hlo_text` in the folder `tests`.

A part (a module in `parts/`, see `part.py`) makes cases from seeds and checks them. Cases run in worker processes with
a limit of memory and of time. What fails is shrunk and written to a folder of findings. A file of it that is moved to
`cases/PART/` is a test from then on: `test_fuzz.py` replays every file there.
"""
