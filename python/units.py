"""Fires the engine's four events from hooks of Python modules. A trial, see README.md."""
import torch
from torch.utils import _pytree

import _intarsia  # after torch, whose libraries it takes


class Entry:
    """One run of a unit whose backward will come."""

    def __init__(self, engine, unit):
        self.engine, self.unit, self.in_backward = engine, unit, False

    def begin_backward(self, gradient):
        if not self.in_backward:
            self.in_backward = True
            self.engine.pre_backward(self.unit)
        return gradient

    def end_backward(self):
        self.in_backward = False
        self.engine.post_backward(self.unit)


class PostBackward(torch.autograd.Function):
    """Identity whose backward runs when the gradients of a unit's inputs are complete."""

    @staticmethod
    def forward(ctx, entry, *inputs):
        ctx.entry = entry
        return tuple(value.view_as(value) for value in inputs)

    @staticmethod
    def backward(ctx, *gradients):
        ctx.entry.end_backward()
        return None, *gradients


def needs_gradient(value):
    return isinstance(value, torch.Tensor) and value.requires_grad


def watch(module, engine, unit):
    """Makes `module` the engine's unit number `unit`."""
    entries = []

    def before(_, args, kwargs):
        engine.pre_forward(unit)
        entries.append(Entry(engine, unit))
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        watched = [i for i, value in enumerate(leaves) if needs_gradient(value)]
        if torch.is_grad_enabled() and watched:
            for i, value in zip(watched, PostBackward.apply(entries[-1], *(leaves[i] for i in watched))):
                leaves[i] = value
        return _pytree.tree_unflatten(leaves, tree)

    def after(_, args, kwargs, output):
        entry = entries.pop()
        outputs = [value for value in _pytree.tree_leaves(output) if needs_gradient(value)]
        for value in outputs:
            value.register_hook(entry.begin_backward)
        engine.post_forward(unit, bool(outputs))

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after, with_kwargs=True)


def recompute(module, name):
    """Lets the module's forward, inside of its hooks, run again in backward instead of keeping what it saved."""
    forward = module.forward

    def again(*args, **kwargs):
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        places = [i for i, value in enumerate(leaves) if isinstance(value, torch.Tensor)]
        shape = []

        def run(tensors):
            now = list(leaves)
            for i, tensor in zip(places, tensors):
                now[i] = tensor
            args, kwargs = _pytree.tree_unflatten(now, tree)
            outputs, out_tree = _pytree.tree_flatten(forward(*args, **kwargs))
            shape[:] = [out_tree]
            return outputs

        outputs = _intarsia.recomputed(run, [leaves[i] for i in places], name)
        return _pytree.tree_unflatten(outputs, shape[0])

    module.forward = again


def initialize(module, units, config, recomputed=False):
    """An engine of `module` in which the parts called `units` are units of their own. `config`: path of a DeepSpeed JSON."""
    named = [(name, value) for name, value in module.named_parameters(remove_duplicate=False)]
    engine = _intarsia.Engine(named, units, config)
    for unit, name in enumerate(engine.units()):
        part = module if unit == 0 else module.get_submodule(name)
        watch(part, engine, unit)
        if recomputed and unit > 0:
            recompute(part, name)
    return engine
