"""The mathematics of private mean estimation: no clock, no input or output, no logging.

============================  =======================  ==========================================================
name here                     symbol in the papers     meaning
============================  =======================  ==========================================================
epsilon, delta                ε, δ (DAME, Kent: α)     privacy parameters of everything one agent or user releases
lower, upper                  μ - L, μ + L             declared bounds of a sample; values are clipped to them
sensitivity                   2L                       how far one replaced sample moves a sum
stddev                        σ_DP                     standard deviation of a Gaussian privacy noise
scale                         σ_DP / √2                scale of a Laplace privacy noise
agent                         a, b ∈ [M]               who owns a stream over time
count                         t, t_κ                   number of an agent's samples (when it released)
release index, `index`        κ                        which release of an agent it is, from 1
horizon                       (κ_max)                  greatest number of releases of one agent: its budget
fresh draw                    Z^(τ_{i-1}+1 : τ_i)      the noise of one p-sum; each release makes exactly one
weights                       w_i                      of past releases in the statistic of one agent
statistic                     T_{b→a}                  weighted mean of an agent's releases
sample variance               σ_a², V_a^(t)            variance of one sample of an agent
significance                  θ_t                      of a same-mean test
class                         C_a^(t)                  agents taken to have the same mean as a
level                         1 - θ                    nominal coverage of an interval
user                          u ∈ [n] (DAME)           who gives one window of samples, and sends one report
round, stage                  Sec. 3 (DAME: halves)    one answer; one of its steps, which asks a share of the users
sizes                         M                        distribution of the number of samples of a user, public
effective size                m̃                        size from which on a user counts in full
half_width                    τ (DAME), Δ (Kent)       of a bin on [-1, 1]
cohort, payers                (Cummings: Sec. 4.2)     users whom a central release asks; who pay for it together
mean, deviation               p̂^initial, σ̂_p           initial estimates of a curator, by releases of their own
cap                           k̂_T, T*                  size from which on a user weighs no more
window, error                 [â_i, b̂_i], α            what a user's mean is clipped to; bound on the error of p̂^initial
============================  =======================  ==========================================================

Modules are imported by name (``from meanstream.operators.agents.agents import Agents``): importing
this package alone imports nothing else, which keeps the command line fast.
"""

if __name__ != "meanstream.operators":
    raise ImportError(
        f"{__name__} is imported by its full name: import meanstream.operators instead"
    )
