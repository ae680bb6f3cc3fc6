"""Tables, figures and pages that compare results with the numbers of papers.

Figures require matplotlib, and pages require jinja2. The extra ``report`` installs both; they are
imported on first use.
"""
