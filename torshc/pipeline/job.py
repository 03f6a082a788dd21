"""What one version of a library is compiled for: options, with all that they leave open resolved at the door."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import ConfigError
from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..bundle.host import CPU
from ..expr import F16
from ..kernels.machine import Machine
from ..passes import pipeline_of
from ..passes.manager import Pipeline
from ..passes.policy import Policy, policy_of
from ..targets import Target, target_of
from ..targets.isa import Isa, resolve, version_mark, versions_of
from ..training import Training, read_training
from .records import Tuning, tuning_of


@dataclass(frozen=True)
class Job:
    """Everything that decides how a model becomes a version of a library; made once, and only read.

    Attributes:
        options: what was asked for; `mcpu` is this version's processor, and `fusion` the strategy that holds.
        pipeline: the passes.
        policy: the fusion rules, with the limits of the target's kernels.
        isa: instruction set of the processor.
        archs: architectures of the device; empty for a processor.
        features: what the target has kernels for, on all of `archs`.
        target: what kernels are rendered for.
        tuning: choices of a tuning record.
        training: the step that the library makes; None for one that runs the model.
    """

    options: CompileOptions
    pipeline: Pipeline
    policy: Policy
    isa: Isa
    archs: tuple[str, ...]
    features: Features
    target: Target
    tuning: Tuning
    training: Training | None = None

    def of_form(self, name: str) -> Job:
        """The job of another form of a model; edited kernels are for the fast form."""
        dump = self.options.dump / name if self.options.dump is not None else None
        return dataclasses.replace(self, options=dataclasses.replace(self.options, kernels=None, dump=dump))


def jobs_of(options: CompileOptions) -> list[Job]:
    """The jobs of a compilation: one for each version that its library has, the best first.

    Raises:
        ConfigError: an option or a file that it names is wrong.
    """
    if options.shard is not None:
        raise ConfigError("--shard cuts a model into ranks, which this does not take", "use it with compile or explain")
    names = versions_of(options.isa, options.mcpu, options.triple)
    return [_job_of(dataclasses.replace(options, mcpu=name)) for name in names]


def _job_of(options: CompileOptions) -> Job:
    kind = target_of(options)
    pipeline = pipeline_of(options)
    policy = dataclasses.replace(
        policy_of(options, pipeline),
        max_buffers=kind.max_buffers,
        horizontal_fusion=kind.horizontal_fusion,
        shared_rows=kind.shared_rows,
        totals=Feature.TOTALS in kind.features,
        states=kind.states,
    )
    isa, archs = resolve(options.mcpu, options.triple), kind.toolchain.archs(options)
    machine = Machine(
        isa.lanes,
        compiler=kind.toolchain.c_compiler(options),
        exact_batches=options.exact_batches,
        tf32=options.precision == "tf32",
        archs=archs,
        version=version_mark(options.isa, isa.processor),
        extras=isa.extras,
    )
    target = kind(machine)
    return Job(
        options=dataclasses.replace(options, fusion=policy.strategy),
        pipeline=pipeline,
        policy=policy,
        isa=isa,
        archs=archs,
        features=kind.features_on(archs, isa.extras),
        target=target,
        tuning=tuning_of(options.tuning_records, target, isa),
        training=None if options.train is None else _training_of(options.train, options, kind),
    )


def _training_of(path: Path, options: CompileOptions, target: type[Target]) -> Training:
    """The step in a file, for a target.

    Raises:
        ConfigError: it is wrong, or asks for what the target's libraries cannot do.
    """
    training = read_training(path)
    if training.refuse_nan and target.device != CPU:
        message = f"{path}: refuse_nan with --target {target.name}, whose steps are over before their loss is seen"
        raise ConfigError(message, "leave it out, and look at the loss")
    if options.precision == F16.name and training.loss_scale is None:
        message = f"{path}: --precision f16 without loss_scale; halves have no room for small gradients"
        raise ConfigError(message, "say `loss_scale: dynamic`")
    return training
