"""Table `acceptance`: how many drafts each request accepted. Replays without speculative decoding have no rows here."""

from perf_db.schema import Column, Dtype, Table

ACCEPTANCE = Table(
    name="acceptance",
    row_is="one request that verified drafts; rounds in passes that also computed its prompt are left out",
    key=("request_id",),
    columns=(
        Column("request_id", Dtype.INT32, "", "whose rounds"),
        Column("n_rounds", Dtype.INT32, "rounds", "passes in which it verified drafts"),
        Column("n_drafts", Dtype.INT32, "tokens", "drafts verified"),
        *(
            Column(f"accepted_{n}", Dtype.INT32, "rounds", f"rounds in which {n or 'no'} draft{'s' * (n != 1)} held")
            for n in range(6)
        ),
    ),
)
