"""What tests that go through models against transformers share: loading, the worst deviations, the summary."""
import pathlib
import tempfile
import time

import runs

import torch
import transformers


def load(folder):
    """The model as transformers reads it, in fp32, and what is wrong with how it was read."""
    model, reading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    return model.eval(), [f"transformers: {key}: {value}" for key, value in reading.items() if value]


class Deviations:
    """The largest deviation of each kind, for the summary."""

    def __init__(self):
        self.worst = {}

    def problems(self, what, off, allowed, message):
        """[message] where `off` is above `allowed` or no number; notes `off` as one of `what`."""
        self.worst[what] = max(self.worst.get(what, 0.0), off)
        return [] if off <= allowed else [f"{message} (off by {off:.1e}, {allowed:.0e} is allowed)"]

    def note(self, what, value):
        self.worst[what] = max(self.worst.get(what, 0.0), value)


def run_cases(program, cases, problems_of):
    """Calls problems_of(program, case, folder, deviations) for each case, with a folder that is gone afterwards; prints
    problems and summary. Returns the exit code."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    begin, failed, deviations = time.monotonic(), 0, Deviations()
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                problems = problems_of(program, case, pathlib.Path(folder), deviations)
            except runs.RunFailed as failure:
                problems = [str(failure)]
        for problem in problems:
            print(f"FAILED: {case:15} {problem}")
        failed += bool(problems)
    for name, value in sorted(deviations.worst.items()):
        print(f"largest deviation: {name:30} {value:.1e}")
    print(f"{len(cases)} models, {failed} of them with problems, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0
