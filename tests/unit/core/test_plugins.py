"""What other packages offer beside what is built in."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from helpers.plugins.offer import offered, offering
from tilewright.core.element_types import element_type, is_element_type
from tilewright.core.errors import UsageError
from tilewright.core.plugins import Offers, PluginError, forget_plugins, installed_plugins

GROUP = "tilewright.greetings"
MODULES = {
    "politely": "def greet():\n    return 'good day'\n",
    "broken": "import no_such_module_anywhere\n",
    "raises": "raise RuntimeError('bad weather')\n",
    "wordless": "greet = 'good day'\n",
}


OURS = {"hello": lambda: "hello", "good_bye": lambda: "good bye"}
GREETINGS = Offers[object](GROUP, kind="greeting", built_in=OURS, needs=("__call__",))


@pytest.fixture
def greetings(tmp_path: Path) -> Generator[Offers[object]]:
    """Ours, one of another package that works, one in the place of ours, and three broken ones."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}_greeting.py").write_text(text)
    points = {name: f"{name}_greeting:greet" for name in MODULES}
    points |= {"hello": "politely_greeting:greet", "nowhere": "politely_greeting:grete"}
    with offering(tmp_path, {GROUP: points}), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        yield GREETINGS


def test_ours_are_found_and_dashes_count_as_underscores() -> None:
    assert GREETINGS.names() == ("hello", "good_bye")
    assert GREETINGS.named("good-bye") is GREETINGS.named("good_bye")
    assert GREETINGS.find("salut") is None
    with pytest.raises(UsageError, match="no greeting is called 'helo'") as caught:
        GREETINGS.named("helo")
    assert "hello" in (caught.value.hint or "")


def test_another_packages_are_found_and_stand_in_the_place_of_ours(
    greetings: Offers[object],
) -> None:
    assert greetings.names()[:2] == ("hello", "good_bye")
    polite = greetings.named("politely")
    assert callable(polite) and polite() == "good day"
    assert greetings.named("hello") is polite
    assert set(greetings.usable()) == {"hello", "good_bye", "politely"}
    assert set(greetings.others()) == {*MODULES, "hello", "nowhere"}
    with pytest.raises(UsageError, match="no greeting") as caught:
        greetings.named("polite")
    assert "politely" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("raises", "RuntimeError: bad weather"),
        ("nowhere", "has no attribute 'grete'"),
        ("wordless", "it is no function"),
    ],
)
def test_a_broken_one_is_told_when_it_is_asked_for(
    greetings: Offers[object], name: str, reason: str
) -> None:
    with pytest.raises(PluginError) as caught:
        greetings.named(name)
    assert f"the greeting '{name}' of the package toys cannot be used" in caught.value.message
    assert reason in caught.value.message
    assert "pip uninstall toys" in (caught.value.hint or "")
    assert caught.value.exit_code == 3
    assert callable(greetings.named("politely"))


def test_one_name_from_two_packages_is_nobodys(tmp_path: Path, greetings: Offers[object]) -> None:
    second = offered(
        tmp_path / "second", "others", {GROUP: {"politely": "politely_greeting:greet"}}
    )
    with pytest.MonkeyPatch.context() as patch:
        for entry in second:
            patch.syspath_prepend(entry)
        forget_plugins()
        with pytest.raises(PluginError, match="more than one package") as caught:
            greetings.named("politely")
        assert "toys" in caught.value.message and "others" in caught.value.message
        assert "politely" not in greetings.usable() and "hello" in greetings.usable()


def test_what_is_installed_is_listed_with_its_faults(greetings: Offers[object]) -> None:
    found = {each.name: each for each in installed_plugins() if each.group == GROUP}
    assert found["politely"].fault is None and found["politely"].package == "toys"
    assert "bad weather" in (found["raises"].fault or "")
    untried = [each for each in installed_plugins({GROUP}) if each.group == GROUP]
    assert len(untried) == len(found) and not any(each.fault for each in untried)


def test_what_went_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "passing_greeting.py").write_text(MODULES["politely"])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with offering(tmp_path, {GROUP: {"passing": "passing_greeting:greet"}}):
            assert "passing" in GREETINGS.names() and GREETINGS.find("passing")
    assert "passing" not in GREETINGS.names() and GREETINGS.find("passing") is None


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        ("Thing", "it is a class; an object of it is wanted"),
        ("OTHER", "it calls itself 'other'"),
        ("BARE", "it has no 'work'"),
    ],
)
def test_an_object_of_the_wrong_kind_is_told(tmp_path: Path, offer: str, reason: str) -> None:
    (tmp_path / "things_of_others.py").write_text(
        "class Thing:\n    name = 'mine'\n    def work(self):\n        pass\n"
        "OTHER = Thing()\nOTHER.name = 'other'\n"
        "class Bare:\n    name = 'mine'\nBARE = Bare()\n"
    )
    group = "tilewright.things_of_others"
    things = Offers[object](group, kind="thing", built_in={}, needs=("name", "work"))
    points = {group: {"mine": f"things_of_others:{offer}"}}
    with offering(tmp_path / "site", points), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with pytest.raises(PluginError, match=reason):
            things.named("mine")
        assert things.usable() == {} and things.knows("mine") and not things.knows("yours")


def test_an_element_type_of_a_package_does_not_replace_ours(tmp_path: Path) -> None:
    (tmp_path / "halves_of_others.py").write_text(
        "from tilewright.core.element_types import ElementType\n"
        "HALF = ElementType(name='float16', bytes=8, kind='float', accumulator='float16')\n"
    )
    points = {"tilewright.element_types": {"float16": "halves_of_others:HALF"}}
    with offering(tmp_path / "site", points), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        assert not is_element_type("quarter")
        assert element_type("float16").bytes == 2
