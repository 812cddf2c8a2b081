"""What packviz once got wrong without a word, each point with its neighbours, so that the list can be read in one place."""

from __future__ import annotations

# ---- 1. Aligning says where the padding is, and can check it


# ---- 2. A name that contains "padding" is True at padding


# ---- 3. A square batch without batch_first warns


# ---- 4. run takes batch_first


# ---- 5. patch_torch names every holder of torch's functions


# ---- 6. The oracle is always torch's own function


# ---- 7. plan and run never disagree


# ---- 8. Constants that nobody measured choose nothing


# ---- 9. check_static is not ok where a trace freezes a length


# ---- 10. The legacy ONNX exporter ignores padding_value


# ---- 11. explain_errors never fails, follows causes, and can be installed


# ---- 12. diagnose says when it cannot judge


# ---- 13. What is almost certain is an error


# ---- 14. advise measures until it is clear, or says that it is not


# ---- 15. The names of a comparison are stable


# ---- 16. A truth table says which half it means


# ---- 17. A file's suffix and its contents agree


# ---- 18. A search says how sure it is


# ---- 19. A panel's complaint is in its text
