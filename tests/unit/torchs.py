"""Results held against torch's own: bit for bit, errors and their texts included."""

import torch


def bits(x):
    return x.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def same(ours, theirs):
    """Whether two results are the same, bit for bit, in lists, tuples and packed sequences."""
    assert type(ours) is type(theirs)
    if isinstance(ours, (tuple, list)):
        assert len(ours) == len(theirs)
        return all(same(one, other) for one, other in zip(ours, theirs, strict=True))
    if not isinstance(ours, torch.Tensor):
        return ours == theirs
    kinds = [(x.dtype, x.shape, x.device, x.stride(), x.requires_grad) for x in (ours, theirs)]
    assert kinds[0] == kinds[1]
    return torch.equal(bits(ours), bits(theirs))


def outcome(function, *arguments, **options):
    """What a call returns, or the type and the text of the error that it raises."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def weights(like):
    """A gradient to start from."""
    x = torch.arange(1, 1 + like.numel(), device=like.device).reshape(like.shape) % 7
    return x.to(like.dtype)


def bad_batches():
    x, good = torch.randn(3, 2, 2), [3, 1]
    yield from (
        (x, bad, False, True)
        for bad in ([1, 3], [3, 0], [3, -1], [3], [3, 1, 1], [], [[3, 1]], [0, 0])
    )
    yield from (
        (x, bad, False, False)
        for bad in ([3, 0], [3, -1], [3, 1, 1], [], [[3, 1]], ["a", "b"], None, 3)
    )
    yield from (
        (x, torch.tensor(bad), False, s)
        for bad in ([3.0, 1.0], [True, True], 3)
        for s in (True, False)
    )
    yield from (
        (torch.randn(shape), good, False, s)
        for shape in ((3, 2, 0), (0, 2, 2), (3,), ())
        for s in (True, False)
    )
    yield torch.randn(3, 0, 2), [], False, False
    yield from (
        (wrong, good, False, s) for wrong in ([[1.0, 2.0]], None, "x") for s in (True, False)
    )
    yield from ((x, good, flag, True) for flag in (1, 0, None))
    yield x, [2, 1, 1], True, True
    # An empty tensor is refused before its lengths are looked at, when they need not be sorted
    # first.
    yield torch.randn(3, 2, 0), [1, 3], False, True
    yield torch.randn(3, 2, 0), [9, 9], False, True
    yield x, torch.tensor(good, device="meta"), False, True


def hand_built():
    data = torch.randn(7, 2).requires_grad_()
    for sizes in (
        [3, 2, 1, 1],
        [3, 2, 1],
        [3, 2, 2, 2],
        [3, 2, 1, 2],
        [4, 3],
        [7],
        [1] * 7,
        [1, 3, 3],
    ):
        yield data, torch.tensor(sizes, dtype=torch.int64)
    yield data, torch.tensor([3, 2, 1, 1], dtype=torch.int32)
    yield data[:6], torch.tensor([3, 3])
    yield data[:, :0], torch.tensor([3, 2, 1, 1])
    yield data[:0], torch.tensor([3, 2, 1, 1])
    for ranks in ([0, 1], [0, 1, 1], [2, 1, 0], [0, 1, 2], [0, 1, 3]):
        for dtype in (torch.int64, torch.int32):
            yield data, torch.tensor([3, 2, 1, 1]), None, torch.tensor(ranks, dtype=dtype)
            yield data[:6], torch.tensor([3, 3]), None, torch.tensor(ranks, dtype=dtype)
    yield data, torch.tensor([3, 2, 1, 1]), torch.tensor([2, 0, 1])
