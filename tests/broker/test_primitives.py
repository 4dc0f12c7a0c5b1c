"""The primitive types: golden bytes, what is refused and where, and that nothing is believed before it is held."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.broker.primitives import MAX_TAGS, Reader, Writer, uuid_bytes, uuid_text
from segreader.errors import ProtocolError

T_ID = "P2wqEH1LTg6belocji9NYA"
RAW_ID = bytes.fromhex("3f6c2a107d4b4e0e9b7a5a1c8e2f4d60")


def reader(data: bytes | str, flexible: bool = True, **of: int) -> Reader:
    return Reader(bytes.fromhex(data) if isinstance(data, str) else data, flexible=flexible, what="Some 3 answer", **of)


def test_integers_are_signed_and_big_endian() -> None:
    numbers = reader("ff" + "fffe" + "fffffffd" + "fffffffffffffffc" + "02" + "00")

    assert numbers.unpack(Struct(">b")) == (-1,)
    assert (numbers.int16(), numbers.int32(), numbers.int64()) == (-2, -3, -4)
    assert (numbers.boolean(), numbers.boolean()) == (True, False)
    numbers.finish()


def test_a_number_that_may_be_null_is_never_below_minus_one() -> None:
    (writer := Writer(flexible=True)).nullable_int64(None)
    writer.nullable_int64(7)
    numbers = reader(bytes(writer.data) + (-2).to_bytes(8, "big", signed=True))

    assert (numbers.nullable_int64(), numbers.nullable_int64()) == (None, 7)
    with pytest.raises(ProtocolError, match="is negative") as refused:
        numbers.nullable_int64()
    assert refused.value.position == 16


def test_an_id_has_the_text_form_of_kafkas_tools_and_zeros_are_none() -> None:
    assert reader(RAW_ID).uuid() == T_ID
    assert reader(bytes(16)).uuid() is None
    assert (uuid_text(RAW_ID), uuid_bytes(T_ID), uuid_bytes(None)) == (T_ID, RAW_ID, bytes(16))
    with pytest.raises(ValueError, match="no UUID"):
        uuid_bytes("3f6c2a10-7d4b-4e0e-9b7a-5a1c8e2f4d60")


@pytest.mark.parametrize(
    ("data", "value"),
    [("00", 0), ("7f", 127), ("8001", 128), ("c061", 12480), ("ffffffff07", 2**31 - 1), ("ffffffff0f", 2**32 - 1)],
)
def test_a_varint_is_groups_of_seven_bits_the_lowest_first(data: str, value: int) -> None:
    assert reader(data).uvarint() == value
    writer = Writer(flexible=True)
    writer.uvarint(value)
    assert writer.data.hex() == data


@pytest.mark.parametrize("data", ["ffffffff10", "8080808080", "808080808001", "ff" * 1000])
def test_a_varint_of_more_than_32_bits_is_refused_where_it_begins(data: str) -> None:
    with pytest.raises(ProtocolError, match="more than 32 bits") as refused:
        reader("0000" + data, start=2).uvarint()

    assert refused.value.position == 2


def test_a_varint_that_is_cut_is_refused() -> None:
    with pytest.raises(ProtocolError, match="end too early"):
        reader("ffff").uvarint()


@pytest.mark.parametrize(("flexible", "data"), [(True, "0274"), (False, "000174")])
def test_strings_have_an_old_and_a_compact_form(flexible: bool, data: str) -> None:
    assert reader(data, flexible).string() == "t"
    assert reader(data, flexible).nullable_string() == "t"
    writer = Writer(flexible=flexible)
    writer.string("t")
    assert writer.data.hex() == data


@pytest.mark.parametrize(("flexible", "null"), [(True, "00"), (False, "ffff")])
def test_a_null_string_is_none_where_it_may_be_null_and_an_error_elsewhere(flexible: bool, null: str) -> None:
    assert reader(null, flexible).nullable_string() is None
    with pytest.raises(ProtocolError, match="null that must not be"):
        reader(null, flexible).string()


def test_an_empty_string_is_not_null() -> None:
    assert reader("01").string() == reader("0000", False).string() == ""


def test_the_client_id_has_the_old_form_in_flexible_headers_too() -> None:
    header = reader("0009736567726561646572" + "00")

    assert header.client_id() == "segreader"
    assert header.tags() == ()
    writer = Writer(flexible=True)
    writer.client_id("segreader")
    assert writer.data.hex() == "0009736567726561646572"


def test_a_string_that_is_not_utf_8_is_refused_without_being_shown() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8") as refused:
        reader(b"\x0bsecret-\xff-x").string()

    assert refused.value.position == 8
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("flexible", "null", "empty", "data"),
    [(True, "00", "01", "036162"), (False, "ffffffff", "00000000", "000000026162")],
)
def test_bytes_are_null_empty_or_a_slice(flexible: bool, null: str, empty: str, data: str) -> None:
    assert reader(null, flexible).nullable_blob() is None
    nothing = reader(empty, flexible).nullable_blob()
    assert nothing is not None
    assert bytes(nothing) == b""
    whole = bytes.fromhex(data)
    taken = reader(whole, flexible).blob()
    assert bytes(taken) == b"ab"
    assert taken.obj is whole


@pytest.mark.parametrize("data", ["fffe", "8000"])
def test_a_negative_length_other_than_null_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError, match="negative"):
        reader(data, False).nullable_string()
    with pytest.raises(ProtocolError, match="negative"):
        reader(data + "0000", False).nullable_blob()
    with pytest.raises(ProtocolError, match="negative"):
        reader(data + "0000", False).nullable_count(1)


@pytest.mark.parametrize(("flexible", "count"), [(True, "ffffffff07"), (False, "7fffffff")])
def test_an_array_that_claims_two_billion_elements_is_refused_before_one_is_read(flexible: bool, count: str) -> None:
    def never() -> int:
        raise AssertionError

    with pytest.raises(ProtocolError, match="more elements than there are bytes") as refused:
        reader(count + "00" * 20, flexible).array(never, 4)

    assert (refused.value.position, refused.value.found) == (0, 2**31 - 2 if flexible else 2**31 - 1)
    assert "5 at most" in str(refused.value)


def test_an_array_of_as_many_elements_as_fit_is_read() -> None:
    numbers = reader("03" + "0000000100000002")

    assert numbers.array(numbers.int32, 4) == (1, 2)


def test_tagged_fields_are_readers_of_their_own_in_any_order_and_number() -> None:
    struct = reader("04" + "0102abcd" + "000101" + "0100" + "c0610100" + "ff")

    tags = [(tag, value.take(value.left).tobytes()) for tag, value in struct.tags()]

    assert tags == [(1, b"\xab\xcd"), (0, b"\x01"), (1, b""), (12480, b"\x00")]
    assert struct.left == 1


def test_a_tagged_value_ends_with_its_size() -> None:
    ((_, value),) = reader("01" + "0001aa" + "bbbb").tags()

    with pytest.raises(ProtocolError, match="end too early"):
        value.int16()
    assert value.left == 1


def test_a_struct_that_is_not_flexible_has_no_tagged_fields() -> None:
    assert reader("ffff", False).tags() == ()


def test_more_tagged_fields_than_any_struct_has_are_refused() -> None:
    writer = Writer(flexible=True)
    writer.tags((tag, b"") for tag in range(MAX_TAGS + 1))

    with pytest.raises(ProtocolError, match="too many tagged fields"):
        reader(bytes(writer.data)).tags()


def test_tags_are_written_by_rising_number() -> None:
    writer = Writer(flexible=True)
    writer.tags([(12480, b"\x01"), (0, b"")])

    assert writer.data.hex() == "02" + "0000" + "c0610101"
    with pytest.raises(ValueError, match="only flexible"):
        Writer(flexible=False).tags([(0, b"")])


def test_bytes_left_over_are_an_error_that_says_how_many_and_where() -> None:
    message = reader("000000070a0b")
    message.int32()

    with pytest.raises(ProtocolError, match=r"Some 3 answer: bytes are left over .*found 2 bytes") as refused:
        message.finish()
    assert refused.value.position == 4


def test_a_read_stops_at_the_end_it_was_given() -> None:
    with pytest.raises(ProtocolError, match=r"found 3 bytes, expected 4 bytes \(byte 1\)"):
        reader("0001020304", start=1, stop=4).int32()


def test_fields_in_a_row_are_read_at_once_and_refused_as_one() -> None:
    row = Struct(">ih")

    assert reader("000000010002").unpack(row) == (1, 2)
    with pytest.raises(ProtocolError, match="end too early"):
        reader("0000000100").unpack(row)


def test_a_frame_has_its_size_before_it() -> None:
    writer = Writer(flexible=False)
    writer.int16(1)
    writer.raw(b"ab")

    assert writer.framed() == b"\0\0\0\4\0\1ab"


@given(st.booleans(), st.lists(st.none() | st.text()), st.lists(st.none() | st.binary()), st.integers(0, 2**32 - 1))
def test_what_is_written_is_read(
    flexible: bool, texts: list[str | None], blobs: list[bytes | None], number: int
) -> None:
    writer = Writer(flexible=flexible)
    writer.count(len(texts))
    for text in texts:
        writer.string(text)
    writer.count(len(blobs))
    for blob in blobs:
        writer.blob(blob)
    writer.count(None)
    writer.uvarint(number)
    writer.uuid(T_ID)
    writer.boolean(True)
    writer.tags()

    again = reader(bytes(writer.data), flexible)

    assert again.array(again.nullable_string, 1) == tuple(texts)
    assert again.array(again.nullable_blob, 1) == tuple(blobs)
    assert again.nullable_count(1) is None
    assert (again.uvarint(), again.uuid(), again.boolean(), again.tags()) == (number, T_ID, True, ())
    again.finish()


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_give_a_value_or_a_protocol_error(data: bytes, flexible: bool) -> None:
    for name in ("uvarint", "nullable_string", "string", "client_id", "nullable_blob", "tags", "uuid", "int64"):
        message = reader(data, flexible)
        try:
            getattr(message, name)()
        except ProtocolError as refused:
            assert refused.position is not None
        assert 0 <= message.position <= len(data)
