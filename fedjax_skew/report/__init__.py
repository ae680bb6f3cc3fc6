"""Tables, figures and pages of results, beside the papers' own numbers.

Figures need matplotlib and pages jinja2. The extra ``report`` installs both; they are imported when
they are first used.
"""
