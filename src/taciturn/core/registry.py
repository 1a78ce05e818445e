"""Registries: components of one kind by name, discovered by importing the modules of a package once."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from taciturn.errors import unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """Named components of one kind.

    A component registers itself when its module is imported. The first look-up imports every module of `package`;
    later look-ups only read a dictionary. Plugins may register further components at any time.

    Parameters
    ----------
    kind : str
        What the components are, for error messages: "loss", "data set".
    package : str
        The package whose modules register the built-in components, or the single module that does.

    Examples
    --------
    >>> COLOURS: Registry[str] = Registry("colour", "taciturn.version")
    >>> COLOURS.register("red")("#f00")
    '#f00'
    >>> COLOURS["red"], "blue" in COLOURS, list(COLOURS)
    ('#f00', False, ['red'])
    >>> COLOURS["rad"]
    Traceback (most recent call last):
        ...
    taciturn.errors.InputError: no colour 'rad' (did you mean 'red'?): there is red
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._items: dict[str, T] = {}
        self._complete = False  # whether every module of the package was imported

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a component under a name.

        Raises
        ------
        ValueError
            From the decorator, if another component already has this name.
        """

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
