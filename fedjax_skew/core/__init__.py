"""The round: cohort, schedule, local training, reduction, evaluation, state, devices."""
