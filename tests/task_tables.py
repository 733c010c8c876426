"""The tasks of tables as the tasks that they stand for, to be held against what was read one by one."""

from collections.abc import Iterable, Iterator

from aworld_train.dataset.tasks import Dropped, Task, TaskKind, TaskTable


def one_by_one(items: Iterable[Task | Dropped | TaskTable]) -> list[Task | Dropped]:
    return [one for item in items for one in (_tasks(item) if isinstance(item, TaskTable) else [item])]


def _tasks(table: TaskTable) -> Iterator[Task]:
    for row, shared in enumerate(table.shared):
        yield Task(
            data_source=shared.data_source,
            ability=shared.ability,
            kind=TaskKind.question if shared.is_question else TaskKind.expression,
            subject=table.subject[row],
            message=table.message[row],
            answer=table.answer[row],
            scorer=shared.scorer,
            answer_schema=shared.answer_schema,
            id=table.id[row],
            system=table.system[row],
            level=table.level[row],
            attachments=tuple(table.attachments[row]),
            ground_truths=tuple(table.ground_truths[row]),
            earlier=table.earlier[row],
            file=shared.file,
            line=table.line[row],
        )
