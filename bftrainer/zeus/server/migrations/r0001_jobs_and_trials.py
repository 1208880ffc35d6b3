"""Jobs and trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

__all__ = ["downgrade", "upgrade"]

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    # As they were at this revision: later ones change `bftrainer.zeus.server.tables`, and never this.
    binary = mysql.VARCHAR(400, charset="utf8mb4", collation="utf8mb4_bin")
    name = sa.String(400).with_variant(binary, "mysql", "mariadb")
    text = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
    op.create_table(
        "bso_job",
        sa.Column("job_id", name, primary_key=True),
        sa.Column("incarnation", sa.String(32), nullable=False),
        sa.Column("spec", text, nullable=False),
        sa.Column("state", text, nullable=False),
        sa.Column("stage", sa.String(7), nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("observations", sa.Integer, nullable=False),
        sa.Column("min_cost", sa.Double),
        sa.Column("min_cost_batch_size", sa.Integer, nullable=False),
        sa.Column("registered", sa.Double, nullable=False),
    )
    op.create_table(
        "bso_trial",
        sa.Column("job_id", name, sa.ForeignKey("bso_job.job_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("trial_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("type", sa.String(11), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("heard", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("time", sa.Double),
        sa.Column("energy", sa.Double),
        sa.Column("cost", sa.Double),
        sa.Column("converged", sa.Boolean),
        sa.Column("observation", sa.Integer),
        sa.Column("request_id", sa.String(64)),
    )
    op.create_index("bso_trial_observation", "bso_trial", ["job_id", "observation"], unique=True)
    op.create_index("bso_trial_request", "bso_trial", ["job_id", "request_id"], unique=True)
    runs = sa.text("status = 'Dispatched'")
    op.create_index("bso_trial_silent", "bso_trial", ["heard"], sqlite_where=runs, postgresql_where=runs)


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("bso_trial")
    op.drop_table("bso_job")
