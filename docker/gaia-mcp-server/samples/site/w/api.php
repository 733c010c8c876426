{
 "parse": {
  "title": "Lighthouse",
  "pageid": 1,
  "revid": 1,
  "text": "<p>The lighthouse keeper counts forty-two gulls.</p>",
  "sections": []
 }
}
