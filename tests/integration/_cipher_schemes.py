"""The schemes of block ciphers that tests ask daemons for."""

from __future__ import annotations

from node_adapter.client import CipherAlgorithm, CipherByteOrder, CipherMode, CipherScheme


def scheme_of(algorithm: CipherAlgorithm, mode: CipherMode) -> CipherScheme:
    order = CipherByteOrder.LOW_FIRST if algorithm is CipherAlgorithm.HIGHT else CipherByteOrder.UNSPECIFIED
    return CipherScheme(algorithm, mode, order)


GCM = scheme_of(CipherAlgorithm.AES, CipherMode.GCM)
CTR = scheme_of(CipherAlgorithm.AES, CipherMode.CTR)
CBC = scheme_of(CipherAlgorithm.AES, CipherMode.CBC)
ECB = scheme_of(CipherAlgorithm.AES, CipherMode.ECB)
