"""The method itself, pure: torch and NumPy only, no model library, no files, no hooks, no engine.

measure     lens.Lens             z_j = W_head(Norm(h_j))                            Eq. lens
            evidence, sums        DMRR_I(v), the mean of 1 / rank_j(v)               Eq. dmrr
            kernels               exact ranks, summed as integers
            readouts, matching    the readouts that DMRR is compared with
register    references            b(v), b0, and which tokens are registered          Eqs. baseline, median-ci, deltae
            references.strength   s_I(v) = clip((b(v) - DMRR_I(v)) / b0, 0, 1)       Eq. suppression-strength
intervene   edit.candidates       the tokens that an edit may reach
            edit.StepEditor       z'(v) = z(v) - beta s_I(v)                         Eq. shift
            trace, check          every step of an edit; the same evidence without one
"""
