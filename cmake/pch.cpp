// Exists to own the precompiled header of cmake/pch.h.
