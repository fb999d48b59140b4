"""The public contract as recorded: HTTP responses, output of commands, and Python signatures.

    exchanges/*.yaml     requests of every route and protocol, each with its answer (errors included)
    commands.yaml        commands, with their output and exit codes
    python_api.txt       the signatures of the public Python names
    answers/*.csv        exact answers of the pretrained models to generated texts, clouds and sequences
    docs/openapi.json    the OpenAPI document

The tests use public interfaces only. `python -m tests.contract.record` records the contract again; the diff
then shows what users will notice. Request ids, times, versions and the wording of error messages are not
compared.
"""
