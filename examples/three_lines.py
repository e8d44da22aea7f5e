"""Hallucinated positives in a contrastive loop of your own: plain torch, noisy vectors instead of
skeletons.
"""

import torch
from torch import nn
from torch.nn import functional as F

from halp.hallucinate import HallucinatedPositives

torch.manual_seed(0)
centres = F.normalize(torch.randn(8, 32), dim=1)  # eight kinds of things, seen through noise
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
optimiser = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
term = HallucinatedPositives(prototypes=8, count=50, recent=256)
queue = F.normalize(torch.randn(256, 16), dim=1)


def views(batch: int = 64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two noisy views of the same things, and what they are."""
    kind = torch.randint(8, (batch,))
    return centres[kind] + 0.2 * torch.randn(batch, 32), centres[kind] + 0.2 * torch.randn(batch, 32), kind


def neighbour_accuracy() -> float:
    """How often the nearest of 512 encoded things is of the same kind."""
    with torch.no_grad():
        first, _, kind = views(512)
        z = F.normalize(encoder(first), dim=1)
        similarity = (z @ z.T).fill_diagonal_(-1)
        return float((kind[similarity.argmax(1)] == kind).float().mean())


before = neighbour_accuracy()
for step in range(200):
    first, second, _ = views()
    query = F.normalize(encoder(first), dim=1)
    with torch.no_grad():
        key = F.normalize(encoder(second), dim=1)
    logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], dim=1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))
    if step >= 50:  # once the queue holds real keys
        loss = loss + 0.1 * term(query, key, queue)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    queue = torch.cat([queue, key])[-256:]  # newest last

kept = 0.0 if term.last is None else float(term.last.kept.float().mean())
print(
    f"nearest neighbour of the same kind: {before:.0%} before, {neighbour_accuracy():.0%} after; {kept:.0%}"
    " kept"
)
