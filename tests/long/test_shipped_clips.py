"""Of more clips of the shipped model than `make test` has time for."""

from test_shipped_video_model import judge


def test_it_shows_what_was_asked_for_where_it_was_asked_for(build_dir):
    judge(build_dir, 24)
