"""Load tests: viewers of a live room by intent mix (Locust), and the latency replay of recorded requests.

From Python, headless, against a running gateway::

    from hat_serving.loadtest.plan import LoadPlan
    from hat_serving.loadtest.run import RunningLoad, run_load

    result = run_load(LoadPlan(url="http://127.0.0.1:8710", users=50, duration_s=30), folder)
    result.failed, result.lost_turns, result.moves          # counts; moves by (from arm, to arm)
    result.turns, result.arms["canary"].wall_p95_s           # every turn, and figures by arm

    with RunningLoad(plan, folder) as load:                  # the same beside what the test does meanwhile
        promote()
    result = load.result()

Locust patches its process with gevent, so it always runs in a process of its own; nothing here imports it but `users`.
Not here: the gateway, engines, and what a load is judged by (the canary's analysis, reports).
"""
