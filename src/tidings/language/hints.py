"""'Did you mean', as the languages of filters say it."""

from tidings.model.hints import did_you_mean as did_you_mean
