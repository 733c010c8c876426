"""The store of a running evaluation.

Nothing of a new evaluation has to be found in its store, so the library for databases is imported, and the database
made, while the first attempts wait for their answers.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aworld_train.evaluation.folder import EvalFolder
from aworld_train.recipe.schema import StoreSection

if TYPE_CHECKING:
    from aworld_train.store.database import Database
    from aworld_train.training.run_store import RunStore


class EvalStore:
    """Enters attempts into the store; ``find_missing`` is called when an evaluation is taken up again."""

    def __init__(
        self,
        folder: EvalFolder,
        section: StoreSection,
        note: Callable[[str], None],
        find_missing: "Callable[[Database], None]",
        model: str,
    ):
        self._folder, self._section, self._note = folder, section, note
        self._find_missing, self._model = find_missing, model
        self._store: RunStore | None = None
        self._error: Exception | None = None
        self._opening = threading.Thread(target=self._open_later, name="eval-store", daemon=True)

    def __enter__(self) -> Self:
        if self._folder.is_resumed or self._section.url is not None or self._section.otlp is not None:
            self._open()
        else:
            self._opening.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening.ident is not None:
            self._opening.join()
        if self._store is not None:
            self._store.__exit__(kind, error, trace)
        elif self._error is not None and error is None:
            raise self._error

    def _open(self) -> None:
        from aworld_train.training.run_store import RunStore

        store = RunStore(
            self._folder.path,
            self._section,
            self._note,
            set_aside=self._find_missing,
            model=self._model,
            is_new=not self._folder.is_resumed,
        )
        store.__enter__()
        self._store = store

    def _open_later(self) -> None:
        try:
            self._open()
        except Exception as error:  # of any kind; raised when the evaluation ends
            self._error = error
