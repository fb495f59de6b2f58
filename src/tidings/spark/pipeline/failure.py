"""Why a stream failed, in one line: of Spark's exceptions, which quote each other, what the innermost says."""

import re

_OWN = re.compile(r"^tidings\.model\.errors\.\w+: (.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w+(?:Error|Exception): .*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?!py4j)[\w.$]+: (?!Traceback)(.*)$", re.MULTILINE)
_SPARK = re.compile(r"\[(?!STREAM_FAILED|FOREACH_BATCH|FAILED_READ_FILE)[A-Z][A-Z0-9_.]+\] ([^\n]+)")
_THROWN = re.compile(r"^: [\w.$]+: (.*)$", re.MULTILINE)  # what Java threw, without a cause
_NAMED = re.compile(r"^(?!py4j)[\w.]+(?:Error|Exception): (.+)$", re.MULTILINE)
_FILE = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] Encountered error while reading file (\S+?)\.\s")
_CODE = re.compile(r"\s*SQLSTATE: \w+")
_PLAN = "\n=== Streaming Query ==="


def reason_of(error: BaseException) -> str:
    """What went wrong, without stack traces, plans and codes."""
    text = str(error).split(_PLAN)[0].strip()
    said = [
        found[-1] for pattern in (_OWN, _PYTHON, _JAVA, _SPARK, _THROWN, _NAMED) if (found := pattern.findall(text))
    ]
    told = _CODE.sub("", said[0] if said else (text.splitlines() or [type(error).__name__])[0]).strip()
    file = _FILE.findall(text)
    return f"{file[-1]}: {told}" if file else told
