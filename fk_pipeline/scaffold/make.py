"""Makes a new pipeline folder from samples: which pipeline they are meant to become, its files, and what is unsure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.cases import first_cases, tests_file
from fk_pipeline.scaffold.column import Meaning, SampleColumn
from fk_pipeline.scaffold.examples import EXAMPLE_LEFT, EXAMPLE_RIGHT
from fk_pipeline.scaffold.foreign_key import ENOUGH, Proposal, propose
from fk_pipeline.scaffold.joined import query_over
from fk_pipeline.scaffold.kinds import FIRST_PIPELINES
from fk_pipeline.scaffold.meanings import Meant
from fk_pipeline.scaffold.meant import Intent, intents_of
from fk_pipeline.scaffold.names import names_table
from fk_pipeline.scaffold.queries import by_name, make_query
from fk_pipeline.scaffold.query_inputs import key_of
from fk_pipeline.scaffold.sample import read_sample
from fk_pipeline.scaffold.sampled import Sample, as_events
from fk_pipeline.scaffold.text import (
    GUESSED,
    NO_SAMPLE,
    aggregate_text,
    folder_of,
    pipeline_text,
    table_text,
    window_text,
    word,
)
from fk_pipeline.scaffold.types import Inferred
from fk_pipeline.scaffold.write import (
    Made,
    facts_of,
    load_before_writing,
    name_of,
    reading_samples,
    refuse_place,
    seen_from,
    write_folder,
)
from fk_pipeline.spec.inputs import PLACEHOLDER
from fk_pipeline.words import listed_for

Choose = Callable[[Sequence[Intent]], Intent]
"""Function from what the samples may be meant to become, the likeliest first, to one of these."""

_BY_HAND = "begin with 'fk-pipeline init DIR', and edit it"


def make_folder(
    folder: Path,
    samples: Sequence[Path],
    *,
    kind: Meant | None = None,
    keys: Sequence[str] = (),
    in_place: bool = False,
    choose: Choose | None = None,
) -> Made:
    """Makes the folder of a pipeline and returns what was written; overwrites no file.

    Args:
        folder: the folder; its name is the name of the pipeline.
        samples: samples of one table or more; of a join, of the left side first; none: an example is written.
        kind: what they are meant to become; None: evidence decides.
        keys: for tables whose key is not known or guessed wrong, `name=column,column`.
        in_place: the pipeline reads the folders of the samples instead of landing folders of its own.
        choose: decides where the samples may be meant to become several things; None: the likeliest counts.

    Raises:
        UsageError: a file exists already, a sample cannot be read, or the samples cannot become what is asked for.
    """
    if keys and not samples:
        raise UsageError("--key is of a table of which there is no sample", fix="give it: --from-sample FILE")
    if not samples:
        return _example(folder, kind or Meant.FOREIGN_KEY)
    with reading_samples():
        tables = [sample for path in samples for sample in read_sample(path)]
    if len(tables) > 2 or kind is Meant.QUERY:
        if kind not in (None, Meant.QUERY):
            names = ", ".join(sample.table for sample in tables)
            raise UsageError(f"--kind {kind} reads at most two tables, and these are {names}", fix="--kind query")
        query, given = query_over(folder, _with_keys(tables, keys))
        return make_query(folder, query, given, keys, in_place=in_place)
    tables = _with_keys(tables, keys)
    if len(tables) == 1 and kind is Meant.FOREIGN_KEY:
        left = as_events(tables[0])
        right = _unknown_right(left)
        intents = [Intent(Meant.FOREIGN_KEY, (left, right), proposal=propose(left, right))]
    else:
        intents = intents_of(tables, kind, ordered=len(samples) > 1)
    intent = choose(intents) if choose is not None and len(intents) > 1 else intents[0]
    return _write(folder, intent, intents, in_place=in_place)


def _example(folder: Path, kind: Meant) -> Made:
    """Makes the folder of an example of a kind, for tables that nobody has."""
    if kind is Meant.FOREIGN_KEY:
        samples = (EXAMPLE_LEFT, EXAMPLE_RIGHT)
        made = _write(folder, Intent(kind, samples, proposal=propose(*samples)), (), in_place=False)
        return replace(made, facts=(), doubts=(), samples=())
    if kind not in FIRST_PIPELINES:
        raise UsageError(f"--kind {kind} needs samples", fix="--from-sample FILE --from-sample FILE, or another --kind")
    name, first = name_of(folder), FIRST_PIPELINES[kind]
    paths = [f"landing/{table}" for table in first.tables]
    texts = {f"{name}.yaml": first.text(name, paths, "warehouse")}
    for table, path, text in zip(first.tables, paths, first.beside, strict=False):
        texts[f"{name}_{table}.yaml"] = text(f"{name}_{table}", [path], "warehouse")
    refuse_place(folder, [*texts, tests_file(name)])
    specs = load_before_writing(dict(reversed(texts.items())), _BY_HAND)
    texts |= {tests_file(name): first_cases(specs[-1]), "README.md": _readme(name, "A pipeline", first.tables, paths)}
    landing = [folder / path for path in paths]
    write_folder(folder, landing, texts)
    written = (*(folder / file for file in texts), *landing, folder / "dagster.yaml")
    commands_for = folder if first.beside else folder / f"{name}.yaml"
    return Made(folder / f"{name}.yaml", tuple(paths), written, (), (), (), (), commands_for, kind)


def _write(folder: Path, intent: Intent, intents: Sequence[Intent], *, in_place: bool) -> Made:
    """Writes the folder of a pipeline that reads one table or two.

    Args:
        folder: the folder.
        intent: the pipeline.
        intents: all that the samples may be meant to become.
        in_place: as of `make_folder`.
    """
    name = name_of(folder)
    file = folder / f"{name}.yaml"
    refuse_place(folder, [file.name, tests_file(name)])
    paths = _paths(folder, intent.samples, in_place=in_place)
    landing = [folder / path for path in dict.fromkeys(paths) if path.startswith("landing/")]
    text, doubts = _text(name, intent, paths)
    complete, _ = _text(name, _with_some_keys(intent), paths)
    (spec,) = load_before_writing({file.name: complete}, _BY_HAND)
    about = f"A pipeline that fk-pipeline keeps up to date: {intent.says}"
    texts = {file.name: text}
    if complete == text:
        texts[tests_file(name)] = first_cases(spec)
    tables = [sample.table for sample in intent.samples]
    texts["README.md"] = _readme(name, about, tables, paths, with_cases=complete == text)
    write_folder(folder, landing, texts)
    files = [folder / written for written in texts if written != "README.md"]
    to_do = _to_do(file, intent, folder / paths[-1])
    return Made(
        file=file,
        paths=tuple(paths),
        written=(*files, *landing, folder / "dagster.yaml", folder / "README.md"),
        facts=tuple(_facts(intent, intents)),
        doubts=tuple(doubts),
        samples=intent.samples,
        to_do=to_do,
        commands_for=file,
        kind=intent.meant,
    )


def _text(name: str, intent: Intent, paths: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the text of the pipeline file, and the guesses in it."""
    first, second = intent.samples[0], intent.samples[-1]
    if intent.groups is not None:
        return aggregate_text(name, first, paths[0], intent.groups)
    if intent.nearness is not None:
        return window_text(name, (first, second), paths, intent.nearness)
    if intent.proposal is not None:
        return pipeline_text(name, first, second, paths, intent.proposal, intent.versions)
    return table_text(name, first, paths[0], "input")


def _paths(folder: Path, samples: Sequence[Sample], *, in_place: bool) -> list[str]:
    """Returns where the files of each table are read, as the pipeline file writes it.

    Raises:
        UsageError: a side would read the files of the other side, or the place of the right side is not known.
    """
    names = [folder_of(sample) for sample in samples]
    names = ["left", "right"] if len(set(names)) < len(names) else names
    if len(samples) == 2 and "table" in samples[0].options and samples[0].path == samples[1].path:
        names = [word(samples[0].path.absolute().name.split(".")[0], "changes")] * 2
    stays = [in_place or sample.format == "delta" for sample in samples]
    _refuse_mixed(samples, stays)
    return [
        seen_from(folder, sample.folder) if stay else f"landing/{name}"
        for sample, stay, name in zip(samples, stays, names, strict=True)
    ]


def _with_keys(tables: Sequence[Sample], keys: Sequence[str]) -> list[Sample]:
    """Returns the samples with the keys that the user gave.

    Raises:
        UsageError: a key is of no table, or names a column that the table lacks.
    """
    given = by_name("--key", keys, "COLUMN,COLUMN")
    names = [sample.table.rsplit(".", 1)[-1].lower() for sample in tables]
    for name in given:
        if name not in names:
            raise UsageError(
                f"--key {name}={given[name]}: no sample is of {name!r}; they are of {listed_for(name, names)}",
                why="nothing was written",
                fix="write the name of the table",
            )
    return [
        replace(sample, key=chosen, key_doubt="", key_from="given to init", are_events=False)
        if (chosen := key_of(name, given.get(name, ""), [column.name for column in sample.columns]))
        else sample
        for name, sample in zip(names, tables, strict=True)
    ]


def _with_some_keys(intent: Intent) -> Intent:
    """Returns a pipeline that loads: with some column for each key and foreign key that is not known."""
    samples = tuple(map(_with_some_key, intent.samples))
    if intent.proposal is None:
        return replace(intent, samples=samples)
    proposal = intent.proposal if all(sample.has_key for sample in intent.samples) else propose(*samples)
    sure = Proposal(tuple(replace(part, score=max(part.score, ENOUGH)) for part in proposal.parts), proposal.others)
    return replace(intent, samples=samples, proposal=sure)


def _with_some_key(sample: Sample) -> Sample:
    """Returns the sample with some column as key if its key is not known."""
    flat = [column for column in sample.columns if column.meaning is not Meaning.NESTED] or list(sample.columns)
    return sample if sample.has_key else replace(sample, key=(flat[0].name,))


def _refuse_mixed(samples: Sequence[Sample], stays: Sequence[bool]) -> None:
    """Refuses sides that would read each other's files in place, and a right side without a sample.

    Raises:
        UsageError: a side would read the files of the other side, or the place of the right side is not known.
    """
    if len(samples) == 1 or not any(stays):
        return
    left, right = samples
    if right.types_from == NO_SAMPLE:
        raise UsageError(
            "where the right side lies is not known", fix="give a sample of it too, or leave out --in-place"
        )
    if all(stays) and left.folder == right.folder and "table" not in left.options:
        raise UsageError(
            f"both samples lie in {left.folder}, so each side would read the other's files",
            fix="leave out --in-place, or keep the files of each table in a folder of their own",
        )


def _to_do(file: Path, intent: Intent, landing: Path) -> tuple[str, ...]:
    """Returns what the user must write because the samples do not show it, one sentence each."""
    sides = ["input"] if len(intent.samples) == 1 else ["left", "right"]
    keys = [
        f"write in {file} which columns identify a row of {sample.table} ({side}.key): {sample.key_doubt}"
        for side, sample in zip(sides, intent.samples, strict=True)
        if not sample.has_key
    ]
    right = intent.samples[-1]
    if right.types_from == NO_SAMPLE:
        return (*keys, f"say in {file} what the right side is, and land files of it in {landing}")
    if intent.proposal is not None and not intent.proposal.is_sure:
        keys.append(f"write in {file} which left column refers to a row of {right.table} (left.foreign_key)")
    return tuple(keys)


def _facts(intent: Intent, intents: Sequence[Intent]) -> list[str]:
    """Returns the facts and the notes about the samples, one sentence each."""
    reason = f": {intent.why}" if intent.why else ""
    others = [f"--kind {other.meant} makes {other.says}" for other in intents if other.meant is not intent.meant]
    sentences = [f"kind  {intent.meant}, {intent.says}{reason}", *others]
    sides = ["input"] if len(intent.samples) == 1 else ["left", "right"]
    sentences += [_sentence(side, sample) for side, sample in zip(sides, intent.samples, strict=True)]
    sentences += [f"{sample.table}: {note}" for sample in intent.samples for note in sample.notes]
    if intent.proposal is not None:
        left, right = intent.samples
        turned = propose(right, left)
        if turned.is_sure and turned.score >= intent.proposal.score + 2:
            sentences.append(
                f"{right.table} seems to refer to {left.table} ({', '.join(turned.written)}): "
                "if so, name the samples the other way round"
            )
    return sentences


def _unknown_right(left: Sample) -> Sample:
    """Returns a guessed right side without a sample: the table to which a column of the left side seems to refer."""
    others = (c for c in left.columns if c.name not in left.key and not names_table("".join(c.subject), left.table))
    refers = next((c for c in others if re.fullmatch(r"(?i).+_(id|key|code|no)", c.name)), None)
    table = refers.name.rsplit("_", 1)[0].lower() + "s" if refers else "right_table"
    name, dtype = (refers.name, refers.inferred.type) if refers else ("id", left.columns[0].inferred.type)
    key = SampleColumn(name, Inferred(dtype, doubt=NO_SAMPLE), frozenset(), 0)
    value = SampleColumn("name", Inferred("STRING", doubt=NO_SAMPLE), frozenset(), 0)
    columns = (key,) if name == "name" else (key, value)
    return Sample(left.path, left.folder, left.format, NO_SAMPLE, table, columns, (name,), NO_SAMPLE, 0, NO_SAMPLE)


def _sentence(side: str, sample: Sample) -> str:
    if sample.types_from == NO_SAMPLE:
        return f"{side:<5} {sample.table}: {NO_SAMPLE}; its part of the pipeline file is a guess"
    return f"{side:<5} {sample.table}: {facts_of(sample)}"


def _readme(name: str, about: str, tables: Sequence[str], paths: Sequence[str], *, with_cases: bool = True) -> str:
    file = f"{name}.yaml"
    folders = "\n".join(f"* `{path}/`: change files of {table}" for path, table in zip(paths, tables, strict=True))
    cases = "cases, rows that are given and rows that the result must then have: write your own beside them."
    of_cases = f"\n* `{tests_file(name)}`: {cases}" if with_cases else ""
    test = f"\nfk-pipeline test {file}        # run the cases" if with_cases else ""
    return f"""# {name}

{about}.

* `{file}`: the pipeline. Lines marked `{GUESSED}` were not said by the sample: look at them before the first run. A
  `{PLACEHOLDER}` stands where nothing tells a key: every command refuses the file until it is replaced.{of_cases}
{folders}. A number in a file's name is its batch (`00000001.jsonl`); a file must be
  complete when it gets its name: write it under a name that begins with `.`, then rename it.
* `dagster.yaml`: settings of Dagster; `fk-pipeline up {file}` puts them into its home, `.dagster`.
* `warehouse/`: the tables, once something was run.

In this folder:

```sh
fk-pipeline plan {file}        # what would be done, and why
fk-pipeline run {file}         # do it
fk-pipeline verify {file}      # prove the result, row by row{test}
fk-pipeline export {file} --to {name}.csv
fk-pipeline up {file}          # the same in Dagster, at http://127.0.0.1:3000; `fk-pipeline down` ends it
```
"""
