"""The wheel: this package with the library and the command, which python/build has put into it."""

import setuptools
from wheel.bdist_wheel import bdist_wheel


class Distribution(setuptools.Distribution):
    def has_ext_modules(self):
        return True  # what it brings is for one platform


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])  # every Python: the library is called by ctypes


setuptools.setup(distclass=Distribution, cmdclass={"bdist_wheel": Wheel})
