"""The register of families, and that presets need no check of their fields when they are asked for."""

from importlib import import_module

import pytest

from blockcalc.readers import read
from blockcalc.readers.families import FAMILIES, FILES
from blockcalc.tables import presets


@pytest.mark.parametrize("file", FILES)
def test_a_file_holds_the_families_that_the_register_says(file):
    assert tuple(sorted(import_module(f"blockcalc.readers.{file}").FAMILIES)) == FILES[file]


def test_no_family_stands_twice():
    assert len(FAMILIES) == sum(map(len, FILES.values())) == len(list(FAMILIES))


@pytest.mark.parametrize("name", presets())
def test_a_preset_has_no_field_that_its_family_does_not_read(name):
    config = presets()[name]["config"]
    assert read(config, name) == read(config, name, known=True)


@pytest.mark.parametrize("name", presets())
def test_a_preset_has_a_source_and_its_own_total(name):
    from blockcalc import Step

    preset = presets()[name]
    assert preset["source"].startswith("https://")
    assert read(preset["config"], name).budget(Step.forward(1, 1)).parameters().total == preset["parameters"]
