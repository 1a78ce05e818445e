"""Replies of the dashboard's servers: JSON, the files of a page, and the reason why a run cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from taciturn.errors import InputError, TaciturnError

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Reply = TypeVar("Reply")

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
READ_ERRORS = (
    *(OSError, KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(ArithmeticError, RecursionError, StopIteration),
)  # everything that reading a file with arbitrary contents can raise; a TaciturnError is a ValueError
ABSOLUTE_FOLDERS = re.compile(r"(?<![^\s'\"(])/(?:[^/\s]+/)*(?=[^/\s])")  # an absolute path without its last part


@dataclass(frozen=True)
class Damaged:
    """Reply about a run that cannot be read; `damaged` is the reason."""

    damaged: str


def encode_json(reply: object) -> bytes:
    """Return a reply as JSON.

    Parameters
    ----------
    reply : object
        Dataclasses, dicts, lists, texts and numbers, nested at will.

    Raises
    ------
    ValueError
        If it contains a number that is not finite, or text that is not valid Unicode.

    Examples
    --------
    >>> encode_json(Damaged("summary.json is damaged"))
    b'{"damaged": "summary.json is damaged"}'
    """
    return json.dumps(reply, default=vars, ensure_ascii=False, allow_nan=False).encode()


def json_response(reply: object, status: int = 200) -> Response:
    """Return an HTTP response with a reply as JSON."""
    return Response(encode_json(reply), status_code=status, media_type="application/json")


def page_files(*folders: str) -> dict[str, bytes]:
    """Return the contents of the files in these folders of the package that a browser may request, by name.

    Other files, such as licences, are left out.
    """
    package = files("taciturn.dashboard")
    found = [file for folder in folders for file in package.joinpath(folder).iterdir()]
    return {file.name: file.read_bytes() for file in found if Path(file.name).suffix in MEDIA_TYPES}


def file_routes(contents: Mapping[str, bytes]) -> list[Route]:
    """Return a route for each file of a page, served from memory; `index.html` is at the root."""

    def serve_file(name: str, content: bytes) -> Endpoint:
        async def serve(request: Request) -> Response:
            return Response(content, media_type=MEDIA_TYPES[Path(name).suffix])

        return serve

    return [Route(f"/{name}".replace("/index.html", "/"), serve_file(name, text)) for name, text in contents.items()]


def printable(text: str) -> str:
    """Return text that can be encoded; lone surrogates, as from odd bytes in a file name, are escaped.

    Examples
    --------
    >>> printable("run \\udcff")
    'run \\\\udcff'
    """
    return text.encode(errors="backslashreplace").decode()


def explain(error: BaseException, root: Path, local: bool) -> str:
    """Return the reason why a run cannot be read, as one sentence.

    Parameters
    ----------
    error : BaseException
        One of `READ_ERRORS`.
    root : Path
        The dashboard's folder; paths below it are named relative to it.
    local : bool
        Whether only this machine sees the page. If not, folders outside `root` are removed from the text.
    """
    match error:
        case TaciturnError():
            text = str(error)
        case OSError():
            text = f"{error.filename or 'a file'} cannot be read: {error.strerror or error}"
        case KeyError():
            text = f"its files are inconsistent: there is no {error}"
        case StopIteration():
            text = "its files are inconsistent: a required entry is missing"
        case _:
            text = f"its files are inconsistent: {error}"
    text = text.replace(f"{root.resolve()}/", "").replace(f"{root}/", "")
    return printable(text if local else ABSOLUTE_FOLDERS.sub("", text))


def reply_or_reason(root: Path, local: bool, make: Callable[[], Reply]) -> Reply | Damaged:
    """Return the reply that `make` creates from a run's files, or the reason why it cannot."""
    try:
        return check_encodable(make())
    except READ_ERRORS as error:
        return Damaged(explain(error, root, local))


def check_encodable(reply: Reply) -> Reply:
    """Return the reply unchanged; raise if it has no JSON, as damaged files may contain any number and any text."""
    try:
        encode_json(reply)
    except ValueError as error:
        raise InputError("its files contain a number that is not finite, or text that is not valid Unicode") from error
    return reply
