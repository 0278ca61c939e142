"""A plugin loaded in the child: its module, its state and its operations' stages."""

from __future__ import annotations

from contextlib import ExitStack

from verifier.drivers._abi import BatchStruct
from verifier.drivers._driver import Driver, Function, Image
from verifier.errors import BackendError
from verifier.workers._messages import Plan

__all__ = ["Instance", "LoadedOperation"]


class LoadedOperation:
    """An operation's stages and `publish`, which follows them. `round_items` fill the device once; `chunk_rounds` of
    them are a chunk, or, where that is 0, as many as the worker's options say."""

    def __init__(
        self, stages: list[Function], publish: Function, round_stage: str = "", chunk_rounds: int = 0
    ) -> None:
        self.stages = [*stages, publish]
        self.lanes = max(stage.lanes for stage in stages)
        working = [stage for stage in stages if stage.name == round_stage] or stages
        self.chunk_rounds = chunk_rounds
        self.round_items = max(stage.lanes * stage.warp_items // 32 for stage in working)


class Instance:
    """A loaded plugin. Failing to load frees what was taken.

    Raises PluginError where the image lacks a stage, BackendError where there is too little memory.
    """

    def __init__(self, driver: Driver, plan: Plan, image: Image) -> None:
        with ExitStack() as undo:
            module = driver.load(image)
            undo.callback(module.close)
            self.info = module.info
            free = driver.memory_free_bytes()
            if self.info.state_bytes > free:
                raise BackendError(f"the plugin's state takes {self.info.state_bytes} bytes, {free} are free")
            state = driver.allocate(max(self.info.state_bytes, 64))
            undo.callback(state.close)
            self.state: int = state.address
            stream = driver.stream()
            undo.callback(stream.close)
            publish = module.function("publish")
            self.operations = [
                LoadedOperation(
                    [module.function(name) for name in operation.stages],
                    publish,
                    operation.round_stage,
                    operation.chunk_rounds,
                )
                for operation in plan.operations
            ]
            for name in plan.state:
                stream.launch(
                    module.function(name), BatchStruct(items=module.constant(f"{name}_count"), state=state.address)
                )
            for operation in self.operations:
                for stage in operation.stages:
                    stream.launch(stage, BatchStruct(state=state.address))
            stream.synchronize()
            self._resources = undo.pop_all()

    def close(self) -> None:
        """Frees module and state. No batch of the instance may be in flight."""
        self._resources.close()
