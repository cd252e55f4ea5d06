"""Golden files: `pytest tests/golden --update-golden` writes them anew; look at the difference before it goes in."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
