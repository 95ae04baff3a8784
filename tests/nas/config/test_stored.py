"""The configuration that a study database keeps is checked when it is read."""

import pytest

from nas.config.schema import SearchConfig
from nas.errors import StoreError


@pytest.mark.parametrize("config", [None, [], {}, {"study": "\x1b[31m"}, {"study": "a", "space": 3, "unknown": 1}])
def test_a_stored_configuration_that_is_not_valid_is_named(config):
    with pytest.raises(StoreError, match="stored configuration of the study is not valid") as raised:
        SearchConfig.stored(config)
    assert str(raised.value).isprintable()


def test_a_stored_configuration_is_that_of_the_search_file(describe):
    config = describe()
    assert SearchConfig.stored(config.model_dump()) == config
