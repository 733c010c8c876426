{"parse": {"title": "Marrow Point", "pageid": 1, "text": "<div><p>The lighthouse of Marrow Point has 217 steps.</p></div>", "sections": [], "properties": {}, "redirects": []}}
