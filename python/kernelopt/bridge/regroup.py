"""Regrouping: our fused node, and a scheduling backend that prints it (DESIGN.md sections 3 and 4).

At the entry of Scheduler.codegen member nodes are exchanged for one GroupNode. The backend is derived from the device's own
and acts on GroupNode alone; every other node goes to its parent, so other compiles are untouched.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import functools

from torch._inductor import config as inductor_config
from torch._inductor import ir as inductor_ir
from torch._inductor import scheduler as inductor_scheduler
from torch._inductor.codegen import common as inductor_common
from torch._inductor.memory import prepare_planning_info
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from kernelopt.bridge.digest import GroupError, GroupView
from kernelopt.bridge.printers import PRINTERS, StitchError


class GroupNode(inductor_scheduler.FusedSchedulerNode):
    """Generated nodes, and library calls that a candidate challenges, printed together by `plan` (KernelPlan, IsolatePlan).

    members: the top-level nodes that it stands for, in schedule order.
    """

    def __init__(self, scheduler, members, plan):
        self.kernelopt_members = list(members)
        self.kernelopt_plan = plan
        nodes = [node for member in members for node in member.get_nodes()]
        for node in nodes:
            if not hasattr(node, "group"):  # a library call; the fused node's constructor reads it
                node.group = (node.get_device(), ((), ()))
        super().__init__(scheduler, nodes)

    def is_extern(self) -> bool:
        return False

    def is_template(self) -> bool:
        return False

    def set_last_usage(self, future_used_buffers, mutation_real_name) -> None:
        # The parent class walks single nodes; members that are fused nodes themselves need theirs as well.
        inductor_scheduler.BaseSchedulerNode.set_last_usage(self, future_used_buffers, mutation_real_name)
        future = future_used_buffers.copy()
        for member in reversed(self.kernelopt_members):
            member.set_last_usage(future, mutation_real_name)
            future.update(member.last_usage)


def _dependencies(node) -> set[str]:
    return {dep.name for dep in node.read_writes.reads} | {dep.name for dep in node.unmet_dependencies}


def _has_effects(node) -> bool:
    return node.is_extern() or node.is_template()


def order_around(nodes, members):
    """(before, after): the nodes between the first and the last member that must run before or after the group.

    Raises StitchError where the group is not convex, or where two calls into libraries would change places.
    """
    chosen = set(map(id, members))
    first = next(i for i, node in enumerate(nodes) if id(node) in chosen)
    last = max(i for i, node in enumerate(nodes) if id(node) in chosen)
    tainted: set[str] = set()
    before, after = [], []
    for node in nodes[first:last + 1]:
        depends = bool(_dependencies(node) & tainted)
        if id(node) in chosen:
            late = set().union(*(other.get_buffer_names() for other in after)) if after else set()
            if _dependencies(node) & late:
                raise StitchError(f"group is not convex: {node.get_name()} needs a step that needs the group")
            tainted.update(node.get_buffer_names())
        elif depends:
            after.append(node)
            tainted.update(node.get_buffer_names())
        else:
            if _has_effects(node) and any(_has_effects(other) for other in after):
                raise StitchError("two library calls would change places")
            before.append(node)
    return before, after


def regroup(scheduler, adapter, groups) -> list[GroupNode]:
    """Replaces each (members, plan) of `groups` by a GroupNode in scheduler.nodes; members are top-level nodes.

    All or nothing per call: orders are computed first, so a StitchError leaves the schedule as it was.
    """
    nodes = list(scheduler.nodes)
    created = []
    for members, plan in groups:
        streams = {adapter.stream_of(scheduler, member) for member in members}
        if len(streams) > 1:
            raise StitchError("group spans several streams")
        if len({member.get_device() for member in members}) > 1:
            raise StitchError("group spans several devices")
        before, after = order_around(nodes, members)
        group = GroupNode(scheduler, members, plan)
        chosen = set(map(id, members))
        first = next(i for i, node in enumerate(nodes) if id(node) in chosen)
        last = max(i for i, node in enumerate(nodes) if id(node) in chosen)
        nodes[first:last + 1] = [*before, group, *after]
        created.append((group, streams.pop()))
    for group, stream in created:
        for node in group.get_nodes():
            scheduler.name_to_fused_node[node.get_name()] = group
        scheduler.name_to_fused_node[group.get_name()] = group
        adapter.set_stream(scheduler, group, stream)
    scheduler.nodes = nodes
    scheduler.compute_last_usage()
    # The wrapper plans reuse of memory from per-node facts that were collected before the entry of codegen.
    prepare_planning_info(nodes, scheduler.name_to_buf, scheduler.name_to_fused_node,
                          OrderedSet(V.graph.graph_inputs.keys()), OrderedSet(V.graph.get_output_names()))
    return [group for group, _ in created]


# -- printing


class KernelPlan:
    """Prints a verified candidate in place of a group.

    view: the group in the program that is being compiled; candidate: a `kernelopt.candidate` document in a language of PRINTERS.
    Canonical names are resolved through view.names. Raises StitchError at construction where they do not fit.
    """

    def __init__(self, view: GroupView, candidate: dict):
        if candidate.get("format") != "kernelopt.candidate" or candidate.get("version") != 1:
            raise StitchError("not a kernelopt.candidate of version 1")
        if candidate["language"] not in PRINTERS:
            raise StitchError(f"language {candidate['language']} has no printer here")
        self.view, self.candidate = view, candidate
        self.kernels = {kernel["name"]: kernel for kernel in candidate["kernels"]}
        self.printer = PRINTERS[candidate["language"]](candidate)
        self.scratch = {entry["name"]: entry for entry in candidate["scratch"]}
        self.real = {f"b{number}": name for number, name in enumerate(view.names)}
        self.touched: set[str] = set()
        written: set[str] = set()
        for launch in candidate["launches"]:
            kernel = self.kernels.get(launch["kernel"])
            if kernel is None or len(kernel["params"]) != len(launch["args"]):
                raise StitchError("launch list does not fit the kernels")
            for arg, param in zip(launch["args"], kernel["params"]):
                if arg in self.scratch:
                    continue
                if arg not in self.real:
                    raise StitchError(f"launch argument {arg} is neither a buffer nor scratch")
                self.touched.add(self.real[arg])
                if param["role"] != "in":
                    written.add(self.real[arg])
        if missing := [name for name in view.writes if name not in written]:
            raise StitchError(f"candidate does not write {', '.join(missing)}")
        forbidden = written - set(view.writes) - set(view.internals)
        if forbidden:
            raise StitchError(f"candidate writes its input {', '.join(sorted(forbidden))}")
        # The compiler hands numbers that live on the host to kernels by value.
        foreign = [name for name in self.touched if view.program["buffers"][name]["device"] != self.printer.device]
        if foreign:
            raise StitchError(f"{', '.join(sorted(foreign))} is not on {self.printer.device}")

    def emit(self, backend, parent: type, node: GroupNode) -> None:
        scheduler, wrapper = backend.scheduler, V.graph.wrapper_code
        operations = {member.get_name() for member in node.get_nodes()}
        for name in self.view.internals:
            if name in self.touched:
                continue
            if scheduler.can_buffer_be_removed_through_fusion(name, operations):
                V.graph.removed_buffers.add(name)
        with V.set_kernel_handler(inductor_common.Kernel(increase_kernel_count=False)):
            for member in node.get_nodes():
                member.mark_run()
        for member in node.get_nodes():  # the call whose result a step takes: never made, and so never freed
            if isinstance(member.node, inductor_ir.FallbackKernel):
                V.graph.removed_buffers.update(member.get_buffer_names())
        # What a call returns is not allocated by its step.
        for name in [*self.view.writes, *(name for name in self.view.internals if name in self.touched)]:
            buffer = scheduler.name_to_buf[name].node if name in scheduler.name_to_buf else None
            if isinstance(buffer, (inductor_ir.ExternKernelAlloc, inductor_ir.MultiOutput)):
                wrapper.writeline(wrapper.make_buffer_allocation(buffer))
        device = node.get_device()
        scratch = {key: self.printer.allocate(wrapper, device, entry) for key, entry in self.scratch.items()
                   if not entry.get("returned")}
        returned = []
        for launch in self.candidate["launches"]:
            kernel = self.kernels[launch["kernel"]]
            if "call" in kernel:
                *given, name = launch["args"]
                returned.append(self.printer.call_library(wrapper, kernel, [scratch[arg][0] for arg in given]))
                scratch[name] = (returned[-1], None)
                continue
            args = [(scratch[arg][0], True) if arg in scratch else (self.real[arg], False) for arg in launch["args"]]
            name, keywords = self.printer.define(wrapper, kernel, launch, args)
            wrapper.generate_kernel_call(name, [arg for arg, _ in args], **keywords)
        for _, handle in scratch.values():
            if handle is not None:
                self.printer.release(wrapper, handle)
        if returned:
            wrapper.writeline(f"del {', '.join(returned)}")


class IsolatePlan:
    """Prints a group with the device's own backend, apart from its neighbours, and notes the kernels.

    After printing, `kernels` holds one entry a launch, in launch order: {"step"} for a library call; else on a CPU {"name",
    "source", "arg_defs", "call_args", "arg_types"}, on a GPU {"name", "source", "call_args", "arg_types"} with torch types for pointers,
    and `workspaces` holds {"name", "dtype", "elements", "zeroed"}.
    """

    def __init__(self, view: GroupView):
        self.view = view
        self.kernels: list[dict] = []
        self.workspaces: list[dict] = []

    def emit(self, backend, parent: type, node: GroupNode) -> None:
        # Reusing an input's memory is a decision about the whole program; alone, a group keeps its inputs.
        with inductor_config.patch(inplace_buffers=False):
            if node.get_device().type == "cpu":
                self._emit_late(backend, parent, node)
            else:
                self._emit_launches(backend, parent, node)

    def _emit_late(self, backend, parent: type, node: GroupNode) -> None:
        """A backend that collects and prints at the flush; what the whole group used last is freed after it."""
        scheduler = backend.scheduler
        late = scheduler.buffer_names_to_free.copy()
        scheduler.buffer_names_to_free.clear()
        setattr(backend, _TAP, self.kernels)
        try:
            for member in node.kernelopt_members:
                if isinstance(member, inductor_scheduler.ExternKernelSchedulerNode):
                    parent.flush(backend)
                    scheduler.codegen_extern_call(member)
                    if not isinstance(member.node, inductor_ir.FallbackKernel):  # its result's step stands for the call
                        self.kernels.append({"step": member.get_name()})
                else:
                    parent.codegen_node(backend, member)
            parent.flush(backend)
        finally:
            setattr(backend, _TAP, None)
            scheduler.buffer_names_to_free.update(late)

    def _emit_launches(self, backend, parent: type, node: GroupNode) -> None:
        """A backend that prints each member at once, and frees after each what the whole group used last."""
        wrapper, scheduler = V.graph.wrapper_code, backend.scheduler
        call, allocate = wrapper.generate_kernel_call, wrapper.generate_workspace_allocation

        def noted_call(kernel_name, call_args, **keywords):
            self.kernels.append({"name": kernel_name, "source": None, "call_args": list(call_args),
                                 "arg_types": list(keywords.get("arg_types") or ())})
            return call(kernel_name, call_args, **keywords)

        def noted_allocation(space):
            self.workspaces.append({"name": space.get_name(), "dtype": space.dtype, "elements": int(space.count),
                                    "zeroed": space.zero_mode.name != "UNINITIALIZED"})
            return allocate(space)

        late = scheduler.buffer_names_to_free.copy()
        scheduler.buffer_names_to_free.clear()
        wrapper.generate_kernel_call, wrapper.generate_workspace_allocation = noted_call, noted_allocation
        try:
            for member in node.kernelopt_members:
                if isinstance(member, inductor_scheduler.ExternKernelSchedulerNode):
                    scheduler.codegen_extern_call(member)
                    if not isinstance(member.node, inductor_ir.FallbackKernel):  # its result's step stands for the call
                        self.kernels.append({"step": member.get_name()})
                elif member.is_foreach():
                    parent.codegen_combo_kernel(backend, member)
                else:
                    parent.codegen_node(backend, member)
            parent.flush(backend)
        finally:
            del wrapper.generate_kernel_call, wrapper.generate_workspace_allocation
            scheduler.buffer_names_to_free.update(late)
        sources = {name: source for source, name in wrapper.src_to_kernel.items()}
        for kernel in (kernel for kernel in self.kernels if "name" in kernel):
            source = sources.get(kernel["name"], "")
            kernel["source"] = source if "@triton.jit" in source else None  # a multi-kernel's entry is a list of names


# Several copies of this code (the package, and each optimized.py) may derive from one another's classes in one process, so
# state kept on a backend carries the name of its copy.
_TAP = f"kernelopt_tap_{id(GroupNode):x}"


@functools.cache
def derived_backend(parent: type) -> type:
    """The scheduling class that prints GroupNode and leaves everything else to `parent`."""

    class KernelOptScheduling(parent):
        def codegen_node(self, node):
            if not isinstance(node, GroupNode):
                return parent.codegen_node(self, node)
            # The parent may still hold kernels that it has not printed; they come first.
            parent.flush(self)
            node.kernelopt_plan.emit(self, parent, node)
            node.kernelopt_members[0].scheduler.free_buffers()

        def define_kernel(self, src_code, nodes, *args, **kwargs):
            name = parent.define_kernel(self, src_code, nodes, *args, **kwargs)
            tap = getattr(self, _TAP, None)
            if tap is not None:
                kernel_args = args[0] if args else kwargs.get("kernel_args")
                defs, call_args, types = (kernel_args or self.kernel_group.args).cpp_argdefs()
                tap.append({"name": name, "source": src_code, "arg_defs": list(defs),
                            "call_args": list(map(str, call_args)), "arg_types": list(types)})
            return name

    KernelOptScheduling.__name__ = f"KernelOpt{parent.__name__}"
    return KernelOptScheduling


def register_backend(device: str) -> None:
    """Derives the device's scheduling backend, once per process; every other registration detail is kept."""
    inductor_common.init_backend_registration()
    current = inductor_common.device_codegens[device]
    if getattr(current.scheduling, "kernelopt_token", None) is GroupNode:
        return

    def scheduling(scheduler):
        backend = current.scheduling(scheduler)
        backend.__class__ = derived_backend(type(backend))
        return backend

    scheduling.kernelopt_token = GroupNode
    inductor_common.register_backend_for_device(
        device, scheduling, current.wrapper_codegen, current.cpp_wrapper_codegen, current.fx_wrapper_codegen,
        inductor_common.custom_backend_passes.get(device), inductor_common.custom_backend_codegen_configs.get(device))


# -- finding groups of a kernel set in a schedule


_MATCH_WINDOW = 256   # a group's steps lie within this many steps
_MATCH_TRIES = 2000   # digests computed per group before giving up


def find_groups(program: dict, digests: dict[str, str], group_digest, wanted: list[dict]):
    """Where the groups of a kernel set occur: a list of (step names, entry), disjoint, larger groups first.

    digests: step name -> digest of that step alone, generated steps only. group_digest(names) -> digest of a group.
    """
    order = [step["name"] for step in program["steps"] if step["name"] in digests]
    taken: set[str] = set()
    found = []
    for entry in sorted(wanted, key=lambda item: -len(item["steps"])):
        for start, name in enumerate(order):
            if name in taken or digests[name] != entry["steps"][0]:
                continue
            window = [other for other in order[start:start + _MATCH_WINDOW] if other not in taken]
            match = _match_from(window, digests, entry, group_digest)
            if match:
                taken.update(match)
                found.append((match, entry))
    return found


def _match_from(window, digests, entry, group_digest):
    budget = [_MATCH_TRIES]

    def extend(chosen, position):
        if len(chosen) == len(entry["steps"]):
            budget[0] -= 1
            try:
                return list(chosen) if group_digest(chosen) == entry["digest"] else None
            except GroupError:
                return None
        for index in range(position, len(window)):
            if budget[0] <= 0:
                return None
            if digests[window[index]] == entry["steps"][len(chosen)]:
                result = extend([*chosen, window[index]], index + 1)
                if result:
                    return result
        return None

    return extend([window[0]], 1)
