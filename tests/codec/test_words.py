"""Which epochs a vehicle's word on an epoch that is over says to have forked."""

from backhaul_codec.protocol.words import FORKED, SPARE, forked_by, spare_of

EPOCH = 7


def test_an_epoch_forked_where_its_vehicle_says_so() -> None:
    assert forked_by(EPOCH, FORKED, [EPOCH, 8]) == {EPOCH}
    assert forked_by(EPOCH, "the hub knows seq 510 of live", [EPOCH, 8]) == set()


def test_an_epoch_forked_out_of_which_its_vehicle_moved_messages() -> None:
    """The hub held another's in their places: the vehicle may have had no other reason to say so."""
    spare = spare_of(EPOCH)
    assert forked_by(spare, SPARE, [EPOCH, 8, spare]) == {EPOCH}
    assert forked_by(spare_of(spare), SPARE, [EPOCH, 8, spare]) == {spare}
    assert forked_by(spare, SPARE, [8]) == set(), "the hub does not know it"
    assert forked_by(spare, "spare", [EPOCH]) == set()
