"""The canary state machine: `advance(spec, state, observation) → next state + commands`. Pure.

    Pending ── canary ready ──▶ Progressing ◀──▶ Paused
                                    │ last step done
                                    ▼
                                Promoting ──▶ Healthy
    any of the above ── abort, failure, deadline ──▶ Aborting ──▶ Degraded

Always holds: - A step's clock runs only while the effective split equals the wanted one; when it drifts, the clock
starts anew. - "Inconclusive" pauses and never promotes; resuming measures again. Promotion needs every gate's success
and 100 % in effect; a wish to promote skips pauses and no measurement. - The canary is retired only once it has been
seen to get no traffic. - Level-triggered: a command is repeated until its effect is observed, so a lost or doubled
one does no harm.

Not here: clocks, networks, how weights are written (backends), what a measurement means (gates).
"""

from __future__ import annotations

from dataclasses import replace

from hat_serving.canary.spec import RolloutSpec
from hat_serving.canary.state import (
    TERMINAL,
    Command,
    Measure,
    Measurement,
    Observation,
    PauseReason,
    Prepare,
    Promote,
    Retire,
    SetWeight,
    State,
    Tally,
    Transition,
    Window,
)

LONGEST_RECORD = 100
"""Windows kept in the status; a split that flaps may not fill it up."""


def advance(spec: RolloutSpec, state: State, seen: Observation, *, settle: float = 0.0) -> Transition:
    """One step of the machine. `settle`: seconds that a split must hold before it counts as in effect."""
    state = state.model_copy(update={"effective_weight": seen.effective})
    if state.phase in TERMINAL:
        return Transition(state)
    if state.started_at is None:
        state = state.model_copy(update={"started_at": seen.now, "resume_seen": seen.resume})
    if seen.promoted:
        return _promoted(state, seen)
    if seen.abort and state.phase != "Aborting":
        state = _abort(state, seen, "AbortRequested", "someone asked for it")
    if state.phase == "Aborting":
        return _aborting(state, seen, settle)
    if state.phase == "Promoting":
        return _promoting(spec, state, seen, settle)
    if state.phase == "Pending":
        return _pending(spec, state, seen, settle)
    return _in_steps(spec, state, seen, settle)


def _promoted(state: State, seen: Observation) -> Transition:
    """The canary is the stable version: by our doing, or by someone else's."""
    ended = state.model_copy(update={"finished_at": seen.now, "waiting_since": None, "clock_started": None})
    if state.phase == "Aborting":
        message = "the canary had become the stable version meanwhile; roll back with a new rollout"
        return Transition(_say(ended, state.reason, message, phase="Degraded"))
    reason = "Promoted" if state.phase == "Promoting" else "PromotedElsewhere"
    return Transition(_say(ended, reason, "the canary is the stable version", phase="Healthy"))


def _pending(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """Preflight, then the canary's workload; no traffic yet."""
    if seen.blocked:
        return Transition(_say(state, "PreflightFailed", seen.blocked, waiting_since=None))
    if seen.paused:
        return Transition(_say(state, "Requested", "paused before it began", waiting_since=None))
    if not seen.ready:
        since = seen.now if state.waiting_since is None else state.waiting_since
        if seen.now - since > spec.progress_deadline:
            return _aborting(
                _abort(state, seen, "CanaryNotReady", seen.note or "the canary never got ready"), seen, settle
            )
        return Transition(_say(state, "WaitingForCanary", seen.note, waiting_since=since), (Prepare(),))
    begun = state.model_copy(update={"phase": "Progressing", "waiting_since": None})
    return _in_steps(spec, _enter(spec, begun, 0), seen, settle)


def _enter(spec: RolloutSpec, state: State, step: int) -> State:
    """The state at the beginning of `step`; its clock does not run yet unless the weight stays."""
    desired = spec.weight_at(step)
    same = desired == state.desired_weight
    entry = spec.steps[step] if step < len(spec.steps) else None
    names = spec.names_of(entry.analysis) if entry is not None and entry.analysis else ()
    return state.model_copy(
        update={
            "step": step,
            "desired_weight": desired,
            "waiting_since": None,
            "matched_since": state.matched_since if same else None,
            "clock_started": None,
            "step_done": False,
            "pause_reason": None,
            "analysis": tuple(Tally(name=name) for name in names),
            "reason": "",
            "message": entry.describe() if entry else "promotion",
        }
    )


def _in_steps(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """Progressing or Paused: hold the split, run the clock, do what the step says."""
    state = _with_background(spec, state)
    held = _hold(spec, state, seen, settle)
    if held is not None:
        return held
    state = _in_force(state, seen)
    state, failed = _take_in(spec, state, seen)
    if failed:
        return _aborting(_abort(state, seen, "AnalysisFailed", failed), seen, settle)
    if seen.paused and state.pause_reason != "Inconclusive":
        return _measure_background(spec, _pause(state, seen, "Requested", "paused by request"), seen)
    unclear = [tally.name for tally in state.background if tally.outcome == "inconclusive"]
    if unclear and state.pause_reason is None:
        return _measure_background(
            spec, _pause(state, seen, "Inconclusive", f"{', '.join(unclear)} cannot be concluded"), seen
        )
    if state.pause_reason is not None:
        return _paused(spec, state, seen, settle)
    return _step(spec, state, seen, settle)


def _hold(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition | None:
    """None when the wanted split is in force and settled; else what brings it back, within the deadline."""
    if seen.effective == state.desired_weight and seen.ready:
        since = seen.now if state.matched_since is None else state.matched_since
        if seen.now - since >= settle:
            return None
        waits = state.waiting_since if state.waiting_since is not None else seen.now
        return Transition(_say(state, "Settling", seen.note, matched_since=since, waiting_since=waits))
    state = _close_window(state, seen)
    since = seen.now if state.waiting_since is None else state.waiting_since
    lost = {"matched_since": None, "clock_started": None, "waiting_since": since}
    if seen.now - since > spec.progress_deadline:
        what = "the canary is not ready" if not seen.ready else f"the split stays at {seen.effective} %"
        return _aborting(
            _abort(state, seen, "ProgressDeadlineExceeded", f"{what}; {seen.note}".rstrip("; ")), seen, settle
        )
    reason = "WaitingForSplit" if seen.ready else "CanaryNotReady"
    return Transition(_say(state, reason, seen.note, **lost), (SetWeight(state.desired_weight),))


def _in_force(state: State, seen: Observation) -> State:
    """The split holds: the clock runs from now on, unless it runs already."""
    update: dict[str, object] = {"waiting_since": None}
    if state.matched_since is None:
        update["matched_since"] = seen.now
    if state.clock_started is None:
        update["clock_started"] = seen.now
    return state.model_copy(update=update)


def _step(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """The clock runs: what the present step asks for."""
    step = spec.steps[state.step]
    elapsed = seen.now - (state.clock_started if state.clock_started is not None else seen.now)
    if state.step_done:
        return _next(spec, state, seen, settle)
    if step.pause is not None and not seen.promote:
        if step.pause.duration is None:
            return _measure_background(spec, _pause(state, seen, "PauseStep", "waits until someone resumes"), seen)
        if elapsed < step.pause.duration:
            return _measure_background(spec, _say(state, "", step.describe()), seen)
    elif step.analysis is not None:
        unclear = [tally.name for tally in state.analysis if tally.outcome == "inconclusive"]
        open_ones = [tally.name for tally in state.analysis if tally.outcome is None]
        if not unclear and open_ones and elapsed <= step.analysis.deadline:
            return Transition(_say(state, "", "analysis"), _due(spec, state, seen, state.analysis))
        if unclear or open_ones:
            why = f"{', '.join(unclear or open_ones)} cannot be concluded"
            return _measure_background(spec, _pause(state, seen, "Inconclusive", why), seen)
    return _next(spec, state, seen, settle)


def _next(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """The step is done: the next one, or promotion once every background metric has succeeded."""
    if state.step + 1 < len(spec.steps):
        following = _enter(spec, _close_window(state, seen), state.step + 1)
        return _in_steps(spec, following, replace(seen, measurements=()), settle)
    open_ones = [tally.name for tally in state.background if tally.outcome != "success"]
    if open_ones:
        waiting = _say(state, "WaitingForAnalysis", f"{', '.join(open_ones)} not concluded yet", step_done=True)
        return _measure_background(spec, waiting, seen)
    promoting = _enter(spec, _close_window(state, seen), len(spec.steps))
    return _promoting(spec, promoting.model_copy(update={"phase": "Promoting"}), seen, settle)


def _paused(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """Holds the split. A pause by request ends with the request; the others when someone resumes."""
    why = state.pause_reason
    running = state.model_copy(update={"phase": "Progressing", "pause_reason": None, "reason": ""})
    if why == "Requested":
        return _measure_background(spec, running.model_copy(update={"clock_started": seen.now}), seen)
    if why == "PauseStep" and seen.promote:
        return _next(spec, running, seen, settle)
    if not seen.resume or seen.resume == state.resume_seen:
        return _measure_background(spec, state.model_copy(update={"reason": why}), seen)
    running = running.model_copy(update={"resume_seen": seen.resume})
    if why == "PauseStep":
        return _next(spec, running, seen, settle)
    fresh = tuple(tally if tally.outcome == "success" else Tally(name=tally.name) for tally in state.background)
    again = running if state.step_done else _enter(spec, running, state.step)
    return Transition(again.model_copy(update={"background": fresh, "clock_started": seen.now}))


def _promoting(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """All traffic to the canary, the soak, and only then it becomes the stable version.

    The deadline bounds the wait for the split. The promotion itself has none: new pods of a large model take their
    time, and what KServe has accepted cannot be taken back by an abort.
    """
    since = seen.now if state.waiting_since is None else state.waiting_since
    if seen.effective == 100 and seen.ready:
        matched = seen.now if state.matched_since is None else state.matched_since
        if seen.now - matched >= settle:
            return _soaking(spec, state.model_copy(update={"matched_since": matched}), seen, settle)
        state = _say(state, "Promoting", seen.note, matched_since=matched, waiting_since=None)
        return Transition(state)
    if seen.now - since > spec.progress_deadline:
        why = seen.note or "the canary never got all traffic"
        return _aborting(_abort(state, seen, "ProgressDeadlineExceeded", why), seen, settle)
    lost = {"matched_since": None, "clock_started": None, "waiting_since": since}
    return Transition(_say(_close_window(state, seen), "WaitingForSplit", seen.note, **lost), (SetWeight(100),))


def _soaking(spec: RolloutSpec, state: State, seen: Observation, settle: float) -> Transition:
    """The old version is warm and without traffic. Background metrics go on, and may still abort, until promotion."""
    if not spec.soak or state.step_done:
        return Transition(_say(state, "Promoting", seen.note, waiting_since=None), (Promote(),))
    clock = seen.now if state.clock_started is None else state.clock_started
    state, failed = _take_in(spec, state.model_copy(update={"clock_started": clock, "waiting_since": None}), seen)
    if failed:
        return _aborting(_abort(state, seen, "AnalysisFailed", failed), seen, settle)
    if seen.now - clock < spec.soak:
        said = f"the old version stays warm for {spec.soak:g} s"
        return _measure_background(spec, _say(state, "Soaking", said), seen)
    open_ones = [tally.name for tally in state.background if tally.outcome != "success"]
    if open_ones:
        said = f"{', '.join(open_ones)} not concluded yet"
        return _measure_background(spec, _say(state, "WaitingForAnalysis", said), seen)
    done = {"clock_started": None, "step_done": True}
    return Transition(_say(_close_window(state, seen), "Promoting", seen.note, **done), (Promote(),))


def _aborting(state: State, seen: Observation, settle: float) -> Transition:
    """All traffic back to the stable version, and once that has settled, the canary goes."""
    if seen.effective != 0:
        return Transition(state.model_copy(update={"matched_since": None}), (SetWeight(0),))
    since = seen.now if state.matched_since is None else state.matched_since
    state = state.model_copy(update={"matched_since": since})
    if seen.now - since < settle:
        return Transition(state)
    if not seen.retired:
        return Transition(state, (Retire(),))
    return Transition(state.model_copy(update={"phase": "Degraded", "finished_at": seen.now}))


def _abort(state: State, seen: Observation, reason: str, message: str) -> State:
    update = {
        "phase": "Aborting",
        "desired_weight": 0,
        "matched_since": None,
        "clock_started": None,
        "waiting_since": None,
        "pause_reason": None,
        "reason": reason,
        "message": message,
    }
    return _close_window(state, seen).model_copy(update=update)


def _pause(state: State, seen: Observation, reason: PauseReason, message: str) -> State:
    """Only a resume that comes after this moment counts."""
    update = {
        "phase": "Paused",
        "pause_reason": reason,
        "reason": reason,
        "message": message,
        "resume_seen": seen.resume,
    }
    return state.model_copy(update=update)


def _say(state: State, reason: str, message: str, **update: object) -> State:
    return state.model_copy(update={"reason": reason, "message": message or state.message, **update})


def _close_window(state: State, seen: Observation) -> State:
    """The clock stops: what was measured while it ran is kept as evidence."""
    if state.clock_started is None or seen.now <= state.clock_started:
        return state
    values = {tally.name: tally.value for tally in (*state.background, *state.analysis) if tally.value is not None}
    window = Window(
        step=state.step, weight=state.desired_weight, started=state.clock_started, ended=seen.now, metrics=values
    )
    return state.model_copy(update={"windows": (*state.windows, window)[-LONGEST_RECORD:]})


def _with_background(spec: RolloutSpec, state: State) -> State:
    """Background metrics begin at their step and are kept from then on."""
    wanted = spec.analysis
    if wanted is None or state.background or state.step < wanted.starting_step:
        return state
    return state.model_copy(update={"background": tuple(Tally(name=name) for name in wanted.metrics)})


def _measure_background(spec: RolloutSpec, state: State, seen: Observation) -> Transition:
    return Transition(state, _due(spec, state, seen, ()))


def _due(spec: RolloutSpec, state: State, seen: Observation, step: tuple[Tally, ...]) -> tuple[Command, ...]:
    """One command for the metrics whose time has come, the first time one interval after the clock started.

    Background metrics are measured on after their success.
    """
    if state.clock_started is None:
        return ()
    elapsed = seen.now - state.clock_started
    candidates = [tally for tally in step if tally.outcome is None]
    candidates += [tally for tally in state.background if tally.outcome in (None, "success")]
    due = [t.name for t in candidates if t.next_at <= seen.now and elapsed >= spec.metric(t.name).interval]
    return (Measure(tuple(dict.fromkeys(due)), max(elapsed, 1.0)),) if due else ()


def _take_in(spec: RolloutSpec, state: State, seen: Observation) -> tuple[State, str]:
    """Adds the measurements to the tallies; the second value says which metric failed, if any."""
    by_name = {measurement.name: measurement for measurement in seen.measurements}
    if not by_name:
        return state, ""

    def taken(tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
        return tuple(fold(spec, tally, by_name.get(tally.name), seen.now) for tally in tallies)

    state = state.model_copy(update={"analysis": taken(state.analysis), "background": taken(state.background)})
    failed = [tally for tally in (*state.analysis, *state.background) if tally.outcome == "failure"]
    return state, "; ".join(dict.fromkeys(f"{tally.name}: {tally.message}" for tally in failed))


def fold(spec: RolloutSpec, tally: Tally, measurement: Measurement | None, now: float) -> Tally:
    """The tally after one more measurement. Pure; a tally that has failed or is inconclusive stays so."""
    if measurement is None or tally.outcome in ("failure", "inconclusive"):
        return tally
    metric = spec.metric(tally.name)
    counts = {
        "successes": tally.successes + (measurement.verdict == "success"),
        "failures": tally.failures + (measurement.verdict == "failure"),
        "inconclusives": tally.inconclusives + (measurement.verdict == "inconclusive"),
        "errors": tally.errors + (measurement.verdict == "error"),
        "consecutive_errors": tally.consecutive_errors + 1 if measurement.verdict == "error" else 0,
    }
    outcome = tally.outcome
    if counts["failures"] > metric.failure_limit:
        outcome = "failure"
    elif (
        counts["inconclusives"] > metric.inconclusive_limit
        or counts["consecutive_errors"] > metric.consecutive_error_limit
    ):
        outcome = "inconclusive"
    elif counts["successes"] and counts["successes"] + counts["failures"] >= metric.count:
        outcome = "success"
    value = tally.value if measurement.value is None else measurement.value
    changes = {"outcome": outcome, "value": value, "message": measurement.message, "next_at": now + metric.interval}
    return tally.model_copy(update={**counts, **changes})
