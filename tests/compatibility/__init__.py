"""Tests that what earlier versions have written, sent or published stays readable and keeps its names."""
