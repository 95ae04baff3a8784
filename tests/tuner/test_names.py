"""The public names of the package stay what they are, whatever part of it is imported."""

import pkgutil

import tuner


def test_no_folder_of_the_package_has_the_name_of_a_public_function():
    """Importing a module sets it as an attribute of its package, and would hide the function."""
    modules = {module.name for module in pkgutil.iter_modules(tuner.__path__)}

    assert modules.isdisjoint(tuner.__all__)
