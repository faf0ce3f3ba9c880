
# ---- common.gp: one style for all pictures
# Okabe and Ito's colours, which the colour-blind tell apart; markers and
# dashes differ too, so that print in grey is enough.
set encoding utf8
array own_colour[6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
array own_mark[6] = [7, 5, 9, 11, 13, 15]
array library_colour[3] = ["#000000", "#666666", "#8A5A00"]
array library_mark[3] = [4, 8, 10]
set border 3 linewidth 1 linecolor rgb "#444444"
set tics nomirror out
set grid linewidth 0.8 linecolor rgb "#CCCCCC"
set key at screen 0.775, graph 1 left top Left reverse samplen 1.6 \
  spacing 1.15 font ",11"
set label 100 title at screen 0.015, screen 0.968 left font ",12"
set label 101 note at screen 0.015, screen 0.0195 * note_lines left \
  textcolor rgb "#444444" font ",10"
top = 0.965 - 0.026 * title_lines
bottom = 0.12 + 0.0195 * note_lines
set lmargin at screen 0.085
set rmargin at screen 0.76
set tmargin at screen top
set bmargin at screen bottom
