"""`tidings simulate FILE.steps`: replays the history of a step file and says what goes wrong in it."""

from pathlib import Path

import msgspec

from tidings.cli.terminal import err, out, print_json
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.simulation.history import History
from tidings.simulation.step_file import read

_SHOWN_VIOLATIONS = 5


def replay(path: Path, *, seed: int | None, strategy: str | None, as_json: bool) -> None:
    """Prints the violations; raises a `TidingsError` if there are any."""
    history = _history(path, seed, strategy)
    violations = history.violations()
    if as_json:
        print_json({"strategy": history.strategy, "seed": history.seed, "violations": msgspec.to_builtins(violations)})
    elif not violations:
        out.print(f"{path}: nothing goes wrong (strategy {history.strategy}, seed {history.seed})", soft_wrap=True)
    else:
        for violation in violations[:_SHOWN_VIOLATIONS]:
            err.print(str(violation), markup=False, soft_wrap=True)
    if violations:
        raise TidingsError(f"{path}: violations: {len(violations)} (strategy {history.strategy}, seed {history.seed})")


def _history(path: Path, seed: int | None, strategy: str | None) -> History:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidValueError(f"{path}: is not UTF-8 text") from None
    history = read(text, str(path)).history
    return msgspec.structs.replace(
        history,
        seed=history.seed if seed is None else seed,
        strategy=history.strategy if strategy is None else strategy,
    )
