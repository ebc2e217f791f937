"""Documents: what is staged is seen when it is safe, in order, or not at all."""

from hypothesis import given, strategies as st

from kourou.nameserver.documents import Document


def test_a_change_is_seen_once_it_is_saved() -> None:
    document: Document[str, str] = Document("old")
    version = document.stage("new", "ann")
    assert version == 1
    assert (document.value, document.staged, document.is_settled) == ("old", "new", False)
    assert document.saved(1) == (["ann"], None)
    assert (document.value, document.staged, document.is_settled) == ("new", "new", True)


def test_changes_during_a_write_share_the_next_one() -> None:
    document: Document[str, str] = Document("old")
    assert document.stage("a", "ann") == 1
    assert document.stage("ab", "bob") is None
    assert document.stage("abc", "cid") is None
    assert document.saved(1) == (["ann"], 2)
    assert (document.value, document.is_settled) == ("a", False)
    assert document.stage("abcd", "dan") is None
    assert document.saved(2) == (["bob", "cid"], 3)
    assert document.value == "abc"
    assert document.saved(3) == (["dan"], None)
    assert document.value == "abcd"


def test_a_failure_takes_back_everything_that_was_staged() -> None:
    document: Document[str, str] = Document("old")
    document.stage("a", "ann")
    document.stage("ab", "bob")
    assert document.failed(1) == ["ann", "bob"]
    assert (document.value, document.staged, document.is_settled) == ("old", "old", True)
    assert document.stage("c", "cid") == 2
    assert document.saved(2) == (["cid"], None)
    assert document.value == "c"


def test_a_failure_of_the_second_write_keeps_the_first() -> None:
    document: Document[str, str] = Document("old")
    document.stage("a", "ann")
    document.stage("ab", "bob")
    document.saved(1)
    assert document.failed(2) == ["bob"]
    assert document.value == document.staged == "a"


@given(st.lists(st.sampled_from(["change", "change", "saved", "failed"]), max_size=30))
def test_every_author_hears_exactly_once_and_the_truth(what: list[str]) -> None:
    """A disk that does as it is told, beside the document: what it holds is what everyone sees, once settled."""
    document: Document[tuple[int, ...], int] = Document(())
    disk: tuple[int, ...] = ()
    writing: tuple[int, tuple[int, ...]] | None = None
    heard: dict[int, bool] = {}
    for author, event in enumerate(what):
        if event == "change":
            version = document.stage((*document.staged, author), author)
            assert (version is None) == (writing is not None)
            if version is not None:
                writing = version, document.staged
        elif writing is not None and event == "saved":
            version, disk = writing
            authors, following = document.saved(version)
            writing = None if following is None else (following, document.staged)
            assert not heard.keys() & authors
            heard.update(dict.fromkeys(authors, True))
        elif writing is not None:
            authors = document.failed(writing[0])
            writing = None
            assert not heard.keys() & authors
            heard.update(dict.fromkeys(authors, False))
        assert document.value == disk
        assert set(disk) == {author for author, well in heard.items() if well}
        assert document.is_settled == (writing is None)
    if writing is None:
        assert heard.keys() == {author for author, event in enumerate(what) if event == "change"}
