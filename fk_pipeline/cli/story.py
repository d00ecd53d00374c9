"""The output of `explain`: the story of a left key, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fk_pipeline.console import print_lines, print_table
from fk_pipeline.spec.keys import shown
from fk_pipeline.story import ResponseStory, Story, SubscriptionStory, Version


def print_story(story: Story) -> None:
    """Prints the story for people: a table of the events, then the present state in sentences."""
    print_lines([f"Left row {shown(story.key)}", ""])
    if rows := sorted(_events(story), key=lambda row: row[0]):  # the events of one batch keep their order
        print_table(["batch", "what", "what it says", "file"], rows)
        print_lines(["* the version that counts", ""] if story.left or story.right else [""])
    result = "no row" if story.result is None else _values(story.result)
    if story.written_at is not None:
        result += f" (written in batch {story.written_in}, {story.written_at})"
    joined = "no row" if story.expected is None else "the same" if story.as_expected else _values(story.expected)
    lines = [
        f"Subscription: {_subscribed(story.subscription)}",
        f"Result: {result}",
        f"The join computed now: {joined}",
    ]
    if story.due:
        due = "; ".join(f"{stage} {', '.join(map(str, batches))}" for stage, batches in story.due.items())
        lines.append(f"Due: {due}")
    if story.folded_to is not None:
        lines.append(
            f"Folded: of old batches, the newest {story.folded_to}, the last version per key is kept, and no response"
        )
    print_lines([*lines, story.conclusion])


def _events(story: Story) -> Iterator[tuple[int, str, str, str]]:
    """Yields the events: the batch, the kind of event, its content, and the landing file."""
    yield from _versions(story.left, is_left=True)
    yield from _versions(story.right, is_left=False)
    for record in story.quarantined:
        what = "quarantined pair" if record.file is None else f"quarantined {record.side} line"
        yield record.batch, what, record.reason, "" if record.file is None else f"{record.file}:{record.line}"
    for response in story.responses:
        asked = f"to {response.instruction}" if response.instruction else "because the right row changed"
        yield response.batch, "response", f"{asked}: {_about(response)}", ""
        yield response.batch, "verdict", f"{response.verdict or 'due'}: {response.why}", ""


def _versions(versions: Iterable[Version], *, is_left: bool) -> Iterator[tuple[int, str, str, str]]:
    """Yields the versions of one side: all values of a key's first version, then only those that have changed."""
    side = "left" if is_left else "right"
    before: dict[str, Version] = {}
    for version in versions:
        mark = " *" if version.current else ""
        if version.key is None:
            before = {}
            yield version.batch, f"{side} truncate{mark}", f"deletes every {side} row", version.file or ""
            continue
        name = shown(version.key)
        what = f"left row{mark}" if is_left else f"right row {name}{mark}"
        yield version.batch, what, _said(version, before.get(name), is_left=is_left), version.file or ""
        before[name] = version


def _said(version: Version, before: Version | None, *, is_left: bool) -> str:
    late = "; late: an older batch had brought a newer version" if version.late else ""
    if version.row is None or version.key is None:
        return f"deleted{late}"
    rest = {name: value for name, value in version.row.items() if name not in version.key}
    refers = f"refers to {shown(version.refers_to) if version.refers_to else 'no right row'}"
    if before is None or before.row is None:
        return "; ".join([_values(rest), *([refers] if is_left else [])]) + late
    parts = [_values(changed)] if (changed := {k: v for k, v in rest.items() if before.row[k] != v}) else ["the same"]
    if is_left and version.refers_to != before.refers_to:
        parts.append(refers)
    if changed and version.hash == before.hash:
        parts.append("no selected column differs")
    return "; ".join(parts) + late


def _about(response: ResponseStory) -> str:
    """Returns a text for the two versions that a response is about."""
    if response.left_hash is None:
        return "the left row is deleted"
    left = f"left row {_of_batch(response.left_batch)}"
    if response.refers_to is None:
        return f"{left}, which refers to no right row"
    right = f"right row {shown(response.refers_to)}"
    if response.right_hash is None:
        return f"{left}, and there is no {right}"
    return f"{left} and {right} {_of_batch(response.right_batch)}"


def _of_batch(batch: int | None) -> str:
    return "that no changelog has any more" if batch is None else f"of batch {batch}"


def _subscribed(found: SubscriptionStory | None) -> str:
    if found is None:
        return "none"
    to = f"to right row {shown(found.refers_to)}" if found.refers_to else "to no right row"
    before = f", before to {shown(found.before)}" if found.before not in (None, found.refers_to) else ""
    asked = f"asked {found.instruction}" if found.instruction else "asked nothing"
    return f"{to}{before}; {asked} in batch {found.propagated_in}"


def _values(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())
