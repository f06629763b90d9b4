"""Prints the reference values of intarsia/optim/reference_values.h: five updates of torch's own optimizers in fp32.

Muon: torch's iteration, in fp32 instead of bf16. LAMB: the formula of DeepSpeed 0.19's csrc/lamb, in torch.
Run with the slow tests' environment: $(tests/python/environment) tests/python/optimizer_values.py
"""
import inspect
import math

import torch

SHAPES = {"embed.weight": (37, 25), "block.up": (60, 40), "block.norm": (60,), "block.down": (40, 75)}
UPDATES = 5


def values(name, shape, phase):
    index = torch.arange(math.prod(shape), dtype=torch.float64)
    key = float(list(SHAPES).index(name))
    return torch.cos(0.37 * index + key + phase).reshape(shape)


def weight(name, shape):
    return values(name, shape, 0.0).float()


def gradient(name, shape, update):
    return (0.1 * values(name, shape, 1.7 * update + 0.5)).float()


class Lamb:
    def __init__(self, params, lr, betas, eps, weight_decay):
        self.params, self.lr, self.betas, self.eps, self.decay = list(params), lr, betas, eps, weight_decay
        self.state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in self.params}
        self.step_count = 0

    @torch.no_grad()
    def step(self):
        self.step_count += 1
        b1, b2 = self.betas
        size = self.lr * math.sqrt(1 - b2**self.step_count) / (1 - b1**self.step_count)
        for p in self.params:
            m, v = self.state[p]
            m.mul_(b1).add_(p.grad, alpha=1 - b1)
            v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            u = m / (v.sqrt() + self.eps) + self.decay * p
            ratio = min(10.0, max(0.01, (p.norm() / u.norm()).item()))
            p.sub_(size * ratio * u)


class Lion:
    def __init__(self, params, lr, betas, weight_decay):
        self.params, self.lr, self.betas, self.decay = list(params), lr, betas, weight_decay
        self.state = {p: torch.zeros_like(p) for p in self.params}

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p in self.params:
            m = self.state[p]
            p.mul_(1 - self.lr * self.decay).sub_(self.lr * torch.sign(b1 * m + (1 - b1) * p.grad))
            m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Muon:
    """torch.optim.Muon for block.up and block.down, AdamW for the rest."""

    def __init__(self, params, lr, momentum, nesterov, weight_decay):
        import torch.optim._muon as module

        source = inspect.getsource(module._zeropower_via_newtonschulz).replace("torch.bfloat16", "torch.float32")
        exec(source, module.__dict__)
        params = list(params)
        self.parts = [
            torch.optim.Muon([params[1], params[3]], lr=lr, momentum=momentum, nesterov=nesterov,
                             weight_decay=weight_decay),
            torch.optim.AdamW([params[0], params[2]], lr=lr, weight_decay=weight_decay),
        ]

    def step(self):
        for part in self.parts:
            part.step()


CASES = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "lion": lambda p: Lion(p, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.01,
                                             weight_decay=0.1),
    "lamb": lambda p: Lamb(p, lr=0.02, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.1),
    "muon": lambda p: Muon(p, lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.1),
}


def main():
    torch.set_num_threads(1)
    for name, make in CASES.items():
        params = {key: torch.nn.Parameter(weight(key, shape)) for key, shape in SHAPES.items()}
        optimizer = make(params.values())
        for update in range(1, UPDATES + 1):
            for key, shape in SHAPES.items():
                params[key].grad = gradient(key, shape, update)
            optimizer.step()
        rows = []
        for param in params.values():
            flat = param.detach().flatten()
            picks = [flat[i].item() for i in (0, flat.numel() // 3, flat.numel() - 1)]
            rows.append("{" + ", ".join(f"{v:.9g}" for v in picks) + "}")
        print(f'    {{"{name}", {{{{{", ".join(rows)}}}}}}},')


if __name__ == "__main__":
    main()
