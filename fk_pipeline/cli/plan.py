"""The output of `plan`: the work of the next run, as JSON and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fk_pipeline.answers import Blocks, Forecast, Topology
from fk_pipeline.cdc.table_versions import shown_file
from fk_pipeline.console import print_lines, print_table, tell
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import LandedFile
from fk_pipeline.plan import Plan, StagePlan
from fk_pipeline.words import counted

REASONS_SHOWN = 12
"""The number of reasons that are shown to people; the JSON has all."""


def as_json(name: str, plan: Plan) -> dict[str, Any]:
    """Returns the plan as the command prints it (`docs/reference/command.md`, plan)."""

    def files(landed: tuple[LandedFile, ...]) -> list[dict[str, Any]]:
        return [{"side": f.side, "batch": int(f.batch), "path": f.path, "bytes": f.size} for f in landed]

    stages = () if plan.stale else plan.stages
    return {
        "pipeline": name,
        "stale": {part: {"was": was, "is": now} for part, (was, now) in plan.stale.items()},
        "fix": plan.fix,
        "new_files": files(plan.discovery.discovered),
        "changed_files": files(plan.discovery.changed),
        "vanished_files": files(plan.discovery.vanished),
        "notices": [asdict(notice) for notice in plan.discovery.notices],
        **({} if plan.registers is None else {"registers": plan.registers}),
        "due": sum(len(stage.why) for stage in stages),
        **({} if plan.topology is None else {"topology": asdict(plan.topology)}),
        **({} if plan.blocks is None else {"blocks": asdict(plan.blocks)}),
        "stages": [
            {
                "stage": stage.stage,
                "batches": [int(batch) for batch in stage.why],
                "passes": [str(part) for part in stage.passes],
                "why": {str(int(batch)): why for batch, why in stage.why.items()},
                "files": len(stage.files),
                "bytes": sum(f.size for f in stage.files),
                "estimated_rows": stage.estimated_rows,
                "strategy": stage.strategy,
                "reason": stage.reason,
                **({} if stage.forecast is None else {"forecast": stage.forecast.as_json()}),
            }
            for stage in stages
        ],
    }


def print_topology(topology: Topology) -> None:
    """Prints the optimisation rules, and the operators without and with those that apply."""
    rules = [[rule.rule, "yes" if rule.applied else "no", rule.why] for rule in topology.rules]
    print_table(["rule", "applied", "why"], rules)
    print_lines(["Operators:", *(f"  {line}" for line in topology.before)])
    if topology.after != topology.before:
        print_lines(["With the rules that apply:", *(f"  {line}" for line in topology.after)])
    tell()


def print_blocks(blocks: Blocks) -> None:
    """Prints how each block is kept up to date, and what else is to be known."""
    print_lines(["Blocks, each with the tables that it reads:", *(f"  {line}" for line in blocks.lines)])
    print_lines(f"note: {note}" for note in blocks.notes)
    tell()


def print_sql(plan: Plan, file: str) -> None:
    """Prints the SQL that the stages compute, each with its name.

    Raises:
        UsageError: the stages compute none.
    """
    sql = plan.blocks.sql if plan.blocks is not None else {}
    if not sql:
        raise UsageError("--sql prints the blocks of a query, and this is none", where=file)
    for name, text in sql.items():
        print_lines([f"-- {name}", f"{text};", ""])


def print_plan(plan: Plan, *, verbose: bool = False) -> None:
    """Prints the plan for people; only the refusal if a run would be refused.

    Args:
        plan: the plan.
        verbose: whether the rules of Kafka and the operators of a windowed join come first.
    """
    if plan.stale:
        tell("A run is refused: the stored tables were made with another pipeline file.")
        print_table(["part", "was", "is"], [[part, was, now] for part, (was, now) in plan.stale.items()])
        tell(f"Undo the edit, or: {plan.fix}")
        return
    if plan.fix:
        tell(plan.fix)
    discovery = plan.discovery
    for what, files in (("new", discovery.discovered), ("changed", discovery.changed)):
        if files:
            number, size = counted(len(files), f"{what} landing file"), counted(sum(f.size for f in files), "byte")
            tell(f"{number}, {size}; the first: {shown_file(files[0])}")
    for notice in discovery.notices:
        tell(f"note: {notice}")
    if verbose and plan.topology is not None:
        print_topology(plan.topology)
    if plan.blocks is not None:
        print_blocks(plan.blocks)
    if plan.registers is not None:
        tell(f"A run registers the result in Spark's catalog as {plan.registers}.")
    if not plan.due:
        tell("Nothing is due.")
        return
    rows = []
    for stage in plan.stages:
        estimate = "not known yet" if stage.estimated_rows is None else f"about {stage.estimated_rows:,}"
        passes = ", ".join(map(str, stage.passes)) or "-"
        rows.append([stage.stage, len(stage.why), passes, *((estimate, stage.strategy) if stage.why else ("", ""))])
    print_table(["stage", "batches", "passes", "rows", "strategy"], rows)
    _print_strategies([stage for stage in plan.stages if stage.why])
    reasons = [[int(batch), stage.stage, why] for stage in plan.stages for batch, why in stage.why.items()]
    first = sorted(reasons)[:REASONS_SHOWN]
    print_table(
        ["batch", "stage", "why"], first, "Why" if len(first) == len(reasons) else f"Why (the first {len(first)})"
    )


def _print_strategies(stages: Sequence[StagePlan]) -> None:
    """Prints how stages go about it, and why: of each what it should take, or of each strategy the reasons."""
    ahead = [(stage, stage.forecast) for stage in stages if stage.forecast is not None]
    if ahead:
        rows = [[stage.stage, *_shown(forecast), forecast.why] for stage, forecast in ahead]
        print_table(["block", "way", "changed rows", "seconds", "why"], rows, "What it should take")
    for strategy, reason in sorted({(stage.strategy, stage.reason) for stage in stages if stage.forecast is None}):
        tell(f"{strategy}: {reason}")


def _shown(forecast: Forecast) -> tuple[str, str, str]:
    """Returns the way, the changed rows and the seconds of a forecast."""
    changed, seconds = forecast.changed_rows, forecast.seconds
    return (
        forecast.way,
        "unknown" if changed is None else f"about {changed:,}",
        "unknown" if seconds is None else f"about {seconds:.1f}",
    )
