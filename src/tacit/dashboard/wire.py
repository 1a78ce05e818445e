"""What is sent: JSON of finite numbers, and of text that can be written."""

from __future__ import annotations

import json
from typing import Any


def encoded(answer: Any) -> bytes:
    """JSON of what is plain already, so that it need not be gone through first."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()


def shown(text: str) -> str:
    """Text in letters that can be sent; what is no letter, such as a file name's odd bytes, is escaped."""
    return text.encode(errors="backslashreplace").decode()
