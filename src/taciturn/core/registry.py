"""Components by name: one file each, found by looking into their folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from taciturn.errors import unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """The components of one kind; a file in the package's folder adds itself with `register`."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._items: dict[str, T] = {}
        self._complete = False  # whether every file of the folder was imported

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate a component (or call with one) to give it a name."""

        def add(item: T) -> T:
            if self._items.get(name, item) is not item:
                raise ValueError(f"two components of kind {self.kind} are named '{name}'")
            self._items[name] = item
            return item

        return add

    def __getitem__(self, name: str) -> T:
        self._discover()
        if name not in self._items:
            raise unknown_name(self.kind, name, self._items)
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._items))

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._items

    def _discover(self) -> None:
        if self._complete:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            importlib.import_module(f"{self._package}.{module.name}")
        self._complete = True
